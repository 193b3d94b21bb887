"""Revisions: the hash of the spec fields that determine pods.

The hash covers only values that differ from the schema's default, quantities as numbers: a new field with a default, or
another spelling of a quantity, starts no rollout. The operator's own defaults (images, probes, flags) are not part of
it: the pod template is kept per hash (`history.py`) and rendered again only for a new one. `unknown_fields.py` puts
fields of a newer release into `raw` where a kept revision was hashed with them.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from octavo.operator.api.accelerators import device
from octavo.operator.api.fields import seconds
from octavo.operator.api.quantity import quantity
from octavo.operator.api.schema import service_schema
from octavo.operator.api.schemas.placement import DISRUPTION
from octavo.operator.api.v1alpha1 import InferenceService

Json = Any  # Any: JSON of any shape

WORKER_FIELDS = ("model", "parallelism", "accelerator", "engine", "resources", "image", "restartAt")
# Fields of spec.router that do not determine its pods; any other change rolls the routers.
NOT_OF_ROUTER_PODS = ("replicas", "service")


def worker_revision(service: InferenceService) -> str:
    """Hash of the spec fields that determine worker pods."""
    chosen = {key: service.raw[key] for key in WORKER_FIELDS if key in service.raw}
    # Routers alone use the name that clients send.
    chosen["model"] = {key: value for key, value in chosen["model"].items() if key != "servedName"}
    if service.spec.accelerator.per_pod == service.spec.parallelism.tensor:
        chosen["accelerator"] = {key: value for key, value in chosen["accelerator"].items() if key != "perPod"}
    schema = service_schema()["properties"]["spec"]
    chosen |= {key: value for key, value in service.raw.items() if key not in schema["properties"]}
    if _same_resources(service.spec.resources, device(service.raw).resources, schema):
        chosen.pop("resources", None)  # equal to the device's default, which the schema does not have
    return _hash(_without_defaults(chosen, schema) | _disruption(service))


def _disruption(service: InferenceService) -> dict[str, Json]:
    """{"disruption": seconds by field} of the fields that differ from their default, {} if none does."""
    desired = {key: seconds(service.raw["disruption"][key]) for key in DISRUPTION}
    changed = {key: value for key, value in desired.items() if value != seconds(DISRUPTION[key])}
    return {"disruption": changed} if changed else {}


def _same_resources(one: Json, other: Json, schema: Mapping[str, Json]) -> bool:
    amounts = schema["properties"]["resources"]
    return bool(_without_defaults(one, amounts) == _without_defaults(other, amounts))


def router_revision(service: InferenceService) -> str:
    """Hash of the spec fields that determine router pods."""
    chosen = {
        "router": {key: value for key, value in service.raw["router"].items() if key not in NOT_OF_ROUTER_PODS},
        "model": {"servedName": service.spec.model.served_name},
        "restartAt": service.spec.restart_at,
    }
    return _hash(_without_defaults(chosen, service_schema()["properties"]["spec"]) | _disruption(service))


def _without_defaults(value: Json, schema: Mapping[str, Json]) -> Json:
    """`value` without nulls and without fields that equal their default; quantities as exact fractions."""
    if schema.get("x-kubernetes-int-or-string"):
        return str(quantity(value))
    if not isinstance(value, Mapping):
        return value
    result = {}
    for key, item in value.items():
        field = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
        trimmed = _without_defaults(item, field)
        default = field.get("default")
        if item is None or trimmed == _without_defaults(default, field) or (trimmed == {} and default == {}):
            continue
        result[key] = trimmed
    return result


def _hash(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
