"""The schema of what containers reserve and may use."""

from collections.abc import Mapping

from octavo.operator.api import fields
from octavo.operator.api.fields import Json


def resources(description: str, default: Json | None = None) -> Json:
    amounts = "Amounts by resource name, e.g. cpu: 500m, memory: 2Gi."
    return fields.record(
        f"{description} Setting it replaces the whole default.",
        {
            "requests": fields.mapping(f"What the scheduler reserves. {amounts}", fields.amount("An amount."), 16),
            "limits": fields.mapping(f"What the container may not exceed. {amounts}", fields.amount("An amount."), 16),
        },
        default=default,
    )


def shown(default: Mapping[str, Mapping[str, str]]) -> str:
    requests, limits = default["requests"], default["limits"]
    return f"requests cpu {requests['cpu']} and memory {requests['memory']}, limit memory {limits['memory']}"
