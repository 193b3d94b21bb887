"""Schema of a container's resource requests and limits."""

from collections.abc import Mapping

from octavo.operator.api import fields
from octavo.operator.api.fields import Json


def resources(description: str, default: Json | None = None) -> Json:
    """Schema of requests and limits."""
    amounts = "By resource name, e.g. cpu: 500m, memory: 2Gi, example.com/fpga: 1."
    return fields.record(
        f"{description} Setting this field replaces the whole default.",
        {
            "requests": fields.mapping(f"Minimum resources. {amounts}", fields.amount("A quantity."), 16),
            "limits": fields.mapping(f"Maximum resources. {amounts}", fields.amount("A quantity."), 16),
        },
        default=default,
    )


def shown(default: Mapping[str, Mapping[str, str]]) -> str:
    """The default in a description."""
    requests, limits = default["requests"], default["limits"]
    return f"requests cpu {requests['cpu']} and memory {requests['memory']}, limit memory {limits['memory']}"
