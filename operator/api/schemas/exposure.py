"""Schema of a service's exposure: the Service for clients and the NetworkPolicies."""

from octavo.operator.api import fields
from octavo.operator.api.fields import Json
from octavo.operator.api.pod_rules import KEY_PATTERN, MAX_KEY, MAX_VALUE, VALUE_PATTERN

_CIDR = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"


def client_service() -> Json:
    """Schema of spec.router.service."""
    return fields.record(
        "The Service for clients. It has the same name as the InferenceService.",
        {
            "type": fields.text(
                "Type of the Service. LoadBalancer also needs spec.router.apiKeys, or insecure: true.",
                16,
                enum=["ClusterIP", "NodePort", "LoadBalancer"],
                default="ClusterIP",
            ),
            "port": fields.integer("Port of the Service for HTTP.", 1, 65535, 80),
            "grpcPort": fields.integer("Port of the Service for gRPC.", 1, 65535, 8033),
            "insecure": fields.flag(
                "Allow type LoadBalancer without API keys: every client that reaches the address is served.", False
            ),
            "annotations": fields.mapping(
                "Annotations of the Service, with which cloud providers configure load balancers, for example as "
                "internal. They are there when the Service is created.",
                fields.text("Value of the annotation.", 4096),
                32,
                {},
            ),
            "loadBalancerClass": fields.text(
                "Class of the load balancer; only with type LoadBalancer. Kubernetes does not change it later.",
                253,
                minLength=1,
                pattern=KEY_PATTERN,
            ),
            "loadBalancerSourceRanges": {
                "type": "array",
                "description": "Client addresses that the load balancer accepts; only with type LoadBalancer. "
                "Default: all.",
                "maxItems": 64,
                "items": _cidr("A range such as 10.0.0.0/8."),
                "default": [],
            },
            "externalTrafficPolicy": fields.text(
                "Only with type NodePort or LoadBalancer. Local keeps client addresses and sends connections only to "
                "routers of the node that receives them. Default: Kubernetes', which is Cluster.",
                8,
                enum=["Cluster", "Local"],
            ),
        },
        default={},
    )


def network_policy() -> Json:
    """Schema of spec.networkPolicy."""
    return fields.record(
        "NetworkPolicies of routers and workers. They need a network plugin that enforces NetworkPolicies.",
        {
            "mode": fields.text(
                "managed: the operator creates them. none: there are none of the operator's, and it deletes its own.",
                16,
                enum=["managed", "none"],
                default="managed",
            ),
            "clients": _peers(
                "Peers that may connect to the HTTP and gRPC ports of the routers; [] for none. Default: all pods of "
                "the namespace; with spec.router.service.type NodePort or LoadBalancer all addresses, since the "
                "addresses of outside clients are not known. All pods of the cluster: `- namespaceSelector: {}`."
            ),
            "metrics": _peers(
                "Peers that may connect to the metrics and health ports of routers and workers. Default: all pods of "
                "the namespace.",
                [{"podSelector": {}}],
            ),
        },
        default={},
    )


def _peers(description: str, default: list[Json] | None = None) -> Json:
    peer = fields.record(
        "A peer, as in a NetworkPolicy: podSelector, namespaceSelector or both, or else ipBlock.",
        {
            "podSelector": _selector("Pods, of the namespace of the InferenceService or of namespaceSelector's."),
            "namespaceSelector": _selector("Namespaces."),
            "ipBlock": fields.record(
                "Addresses.",
                {
                    "cidr": _cidr("A range such as 10.0.0.0/8."),
                    "except": {
                        "type": "array",
                        "description": "Ranges within cidr that do not belong to the peer.",
                        "maxItems": 16,
                        "items": _cidr("A range within cidr."),
                    },
                },
                required=["cidr"],
            ),
        },
    )
    schema: Json = {"type": "array", "description": description, "maxItems": 32, "items": peer}
    return schema if default is None else {**schema, "default": default}


def _selector(description: str) -> Json:
    expression = fields.record(
        "A requirement on a label.",
        {
            "key": fields.text("Key of the label.", MAX_KEY, minLength=1, pattern=KEY_PATTERN),
            "operator": fields.text("How values are compared.", 16, enum=["In", "NotIn", "Exists", "DoesNotExist"]),
            "values": {
                "type": "array",
                "description": "Values, for In and NotIn.",
                "maxItems": 16,
                "items": fields.text("Value of the label.", MAX_VALUE, pattern=VALUE_PATTERN),
            },
        },
        required=["key", "operator"],
    )
    return fields.record(
        f"{description} {{}} selects all.",
        {
            "matchLabels": fields.mapping(
                "Labels.", fields.text("Value of the label.", MAX_VALUE, pattern=VALUE_PATTERN), 16
            ),
            "matchExpressions": {
                "type": "array",
                "description": "Requirements on labels.",
                "maxItems": 16,
                "items": expression,
            },
        },
    )


def _cidr(description: str) -> Json:
    return fields.text(description, 43, minLength=1, pattern=_CIDR)
