"""Schema of the routers: their settings, which are octavo.shared.router_settings', their keys, and Service."""

from octavo.operator.api import fields
from octavo.operator.api.fields import Json
from octavo.operator.api.schemas.exposure import client_service
from octavo.operator.api.schemas.resource import resources, shown
from octavo.shared.router_settings import RECORDS, SETTINGS, Setting
from octavo.shared.setting_kinds import ORIGIN, Choice, Duration, Integer, Kind, Origins, Switch

DEFAULT_ROUTER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def router() -> Json:
    """Schema of spec.router."""
    return fields.record(
        "The routers, which serve the HTTP and gRPC APIs, queue requests and dispatch them to groups.",
        {
            "replicas": fields.integer("Number of router pods.", 0, 100, 1),
            **_settings(),
            "apiKeys": _api_keys(),
            "service": client_service(),
            "resources": resources(
                f"Resources of each router container. Default: {shown(DEFAULT_ROUTER)}.", DEFAULT_ROUTER
            ),
        },
        default={},
    )


def _settings() -> Json:
    """Schemas of the settings, by field of spec.router. Raises KeyError: RECORDS does not describe a record."""
    made: Json = {}
    for setting in SETTINGS.values():
        record, _, name = setting.path.rpartition(".")
        if record and record not in made:
            made[record] = fields.record(RECORDS[record], {}, default={})
        (made[record]["properties"] if record else made)[name] = _setting(setting)
    return made


def _setting(setting: Setting) -> Json:
    return fields.with_default(_kind(setting.kind, setting.description), setting.kind.to_field(setting.default))


def _kind(kind: Kind, description: str) -> Json:
    match kind:
        case Integer():
            return fields.integer(description, kind.low, kind.high)
        case Duration():
            return fields.text(description, 32)  # its form is a rule, whose message says what to write
        case Choice():
            return fields.text(description, kind.max_length, enum=list(kind.names))
        case Switch():
            return {"type": "boolean", "description": description}
        case Origins():
            return {"type": "array", "description": description, "maxItems": 64, "items": _origin()}
    raise TypeError(f"no schema for {kind}")


def _origin() -> Json:
    return fields.text(
        "Scheme, host and port as browsers send them: in lower case, without a path.", 253, minLength=1, pattern=ORIGIN
    )


def _api_keys() -> Json:
    """Schema of spec.router.apiKeys; without it the API needs no key."""
    return fields.record(
        "API keys that clients must send. Default: none; every client that reaches a port is served. Changes to the "
        "Secret take effect within about a minute, without a restart; another Secret or entry replaces the routers, "
        "and routers with the earlier keys are stopped after a minute at the latest.",
        {
            "secretName": fields.text(
                "Secret with the keys, in the namespace of the InferenceService. Mounted only into the router pods. "
                "While it is missing or holds no key, every request is refused.",
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
