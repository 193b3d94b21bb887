"""The schema of the routers: their queue, their clients, and the Service in front of them."""

from octavo.operator.api import fields
from octavo.operator.api.fields import Json
from octavo.operator.api.resource_schema import resources, shown

# What `octavo router` takes for --tool-parser, --reasoning-parser and --cors-origin; tests/contract compares them.
TOOL_PARSERS = ["auto", "none", "llama3", "hermes", "mistral"]
REASONING_PARSERS = ["auto", "none", "think"]
ORIGIN = r"^(\*|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?)$"
DEFAULT_ROUTER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def router() -> Json:
    """spec.router."""
    queue = fields.record(
        "Requests that wait for a group.",
        {
            "maxRequests": fields.integer("Most requests that wait in a router pod; more get 429.", 1, 1_000_000, 1000),
            "maxWait": fields.text(
                "Longest wait, such as 500ms, 60s or 2m; then 503.",
                8,
                minLength=2,
                pattern=r"^[0-9]{1,6}(ms|s|m)$",
                default="60s",
            ),
        },
        default={},
    )
    service = fields.record(
        "The Service that clients connect to; it has the name of the resource.",
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
        "The router: it speaks HTTP and gRPC, queues requests and hands them to groups.",
        {
            "replicas": fields.integer("Number of router pods.", 0, 100, 1),
            "processes": fields.integer("Processes of a router pod, each using about one CPU when busy.", 1, 64, 1),
            "queue": queue,
            "maxConnections": fields.integer(
                "Most connections that clients may have open at once to a router pod, for HTTP and for gRPC each; more "
                "are turned away.",
                1,
                1_000_000,
                8192,
            ),
            "clientPriority": fields.flag(
                "Clients may set the priority of their requests. A lower one always goes first, so that others may "
                "wait for ever.",
                False,
            ),
            "strict": fields.flag(
                "Requests with fields that nobody knows are refused; without it they are served, and the answer has a "
                "warning.",
                False,
            ),
            "corsOrigins": _cors_origins(),
            "toolParser": _parser(
                "Format of the model's tool calls. auto: what its chat template shows. none: requests with tools are "
                "refused.",
                TOOL_PARSERS,
            ),
            "reasoningParser": _parser(
                "Whether <think> sets reasoning apart from the answer. auto: if the model's chat template shows it.",
                REASONING_PARSERS,
            ),
            "apiKeys": _api_keys(),
            "service": service,
            "resources": resources(
                f"Resources of each router container. Default: {shown(DEFAULT_ROUTER)}.", DEFAULT_ROUTER
            ),
        },
        default={},
    )


def _parser(description: str, choices: list[str]) -> Json:
    return fields.text(description, 16, enum=choices, default="auto")


def _cors_origins() -> Json:
    return {
        "type": "array",
        "description": "Origins whose pages may call the API from a browser, such as https://app.example.com, or * for "
        "all. Default: none.",
        "maxItems": 64,
        "items": fields.text(
            "Scheme, host and port as browsers send them: in small letters, without a path.",
            253,
            minLength=1,
            pattern=ORIGIN,
        ),
        "default": [],
    }


def _api_keys() -> Json:
    """Without a default: who does not ask for keys has none."""
    return fields.record(
        "Keys that clients need. Default: none, anybody who reaches a port may ask. Keys that are added to or taken "
        "from the Secret hold within about a minute, without a restart.",
        {
            "secretName": fields.text(
                "Secret of this namespace that holds the keys. It is mounted into router pods, which do not start "
                "without it, and is read by nobody else.",
                253,
                minLength=1,
                pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            ),
            "key": fields.text(
                "Entry of the Secret: a text with one key a line; blank lines and those that begin with # are skipped.",
                253,
                minLength=1,
                pattern=r"^[-._a-zA-Z0-9]+$",
                default="keys",
            ),
        },
        required=["secretName"],
    )
