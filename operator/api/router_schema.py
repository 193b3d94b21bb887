"""Schema of the routers: their queue, client settings, and Service."""

from octavo.operator.api import fields
from octavo.operator.api.fields import Json
from octavo.operator.api.resource_schema import resources, shown
from octavo.shared.origins import ORIGIN
from octavo.shared.parser_names import REASONING_FLAGS, TOOL_FLAGS
from octavo.shared.policies import DEFAULT_POLICY, POLICIES, described

DEFAULT_ROUTER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def router() -> Json:
    """Schema of spec.router."""
    queue = fields.record(
        "Queue of the requests that wait for a group.",
        {
            "maxRequests": fields.integer(
                "Maximum number of waiting requests per router pod. Further requests get 429.", 1, 1_000_000, 1000
            ),
            "maxWait": fields.text(
                "Maximum wait, e.g. 500ms, 60s or 2m. The request then gets 503.",
                8,
                minLength=2,
                pattern=r"^[0-9]{1,6}(ms|s|m)$",
                default="60s",
            ),
        },
        default={},
    )
    service = fields.record(
        "The Service for clients. It has the same name as the InferenceService.",
        {
            "type": fields.text(
                "Type of the Service.", 16, enum=["ClusterIP", "NodePort", "LoadBalancer"], default="ClusterIP"
            ),
            "port": fields.integer("Port of the Service for HTTP.", 1, 65535, 80),
            "grpcPort": fields.integer("Port of the Service for gRPC.", 1, 65535, 8033),
        },
        default={},
    )
    return fields.record(
        "The routers, which serve the HTTP and gRPC APIs, queue requests and dispatch them to groups.",
        {
            "replicas": fields.integer("Number of router pods.", 0, 100, 1),
            "processes": fields.integer("Processes per router pod. Each uses about one CPU when busy.", 1, 64, 1),
            "queue": queue,
            "policy": _policy(),
            "maxConnections": fields.integer(
                "Maximum number of open client connections per router pod, counted separately for HTTP and gRPC. "
                "Further connections are refused.",
                1,
                1_000_000,
                8192,
            ),
            "clientPriority": fields.flag(
                "Allow clients to set the priority of their requests. Requests with a lower value always go first, so "
                "requests with a higher value may never run.",
                False,
            ),
            "strict": fields.flag(
                "Reject requests with unknown fields. If false, they are served and the response carries a warning.",
                False,
            ),
            "corsOrigins": _cors_origins(),
            "toolParser": _parser(
                "Format of the model's tool calls. auto: detected from the chat template. none: requests with tools "
                "are rejected.",
                list(TOOL_FLAGS),
            ),
            "reasoningParser": _parser(
                "Whether <think> separates reasoning from the answer. auto: detected from the chat template.",
                list(REASONING_FLAGS),
            ),
            "apiKeys": _api_keys(),
            "service": service,
            "resources": resources(
                f"Resources of each router container. Default: {shown(DEFAULT_ROUTER)}.", DEFAULT_ROUTER
            ),
        },
        default={},
    )


def _policy() -> Json:
    text = f"Routing policy: which group gets a request. {described()}."
    return fields.text(text, 64, enum=list(POLICIES), default=DEFAULT_POLICY)


def _parser(description: str, choices: list[str]) -> Json:
    return fields.text(description, 16, enum=choices, default="auto")


def _cors_origins() -> Json:
    return {
        "type": "array",
        "description": "Origins that may call the API from a browser, e.g. https://app.example.com, or * for all. "
        "Default: none.",
        "maxItems": 64,
        "items": fields.text(
            "Scheme, host and port as browsers send them: in lower case, without a path.",
            253,
            minLength=1,
            pattern=ORIGIN,
        ),
        "default": [],
    }


def _api_keys() -> Json:
    """Schema of spec.router.apiKeys; without it the API needs no key."""
    return fields.record(
        "API keys that clients must send. Default: none; every client that reaches a port is served. Changes to the "
        "Secret take effect within about a minute, without a restart.",
        {
            "secretName": fields.text(
                "Secret with the keys, in the namespace of the InferenceService. Mounted only into the router pods, "
                "which do not start without it.",
                253,
                minLength=1,
                pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            ),
            "key": fields.text(
                "Entry of the Secret: one API key per line. Blank lines and lines that start with # are ignored.",
                253,
                minLength=1,
                pattern=r"^[-._a-zA-Z0-9]+$",
                default="keys",
            ),
        },
        required=["secretName"],
    )
