"""Kinds of schema fields. Each has a description and a bound: the API server estimates the cost of rules by bounds."""

from typing import Any

from octavo.operator.api.quantity import PATTERN
from octavo.shared.setting_kinds import DURATION, Duration

Json = dict[str, Any]  # Any: JSON


def record(
    description: str, properties: Json, *, default: Json | None = None, required: list[str] | None = None
) -> Json:
    """Schema of an object with named fields."""
    schema: Json = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = required
    if default is not None:
        schema["default"] = default
    return schema


def integer(description: str, low: int, high: int, default: int | None = None) -> Json:
    """Schema of a whole number."""
    schema: Json = {"type": "integer", "format": "int32", "description": description, "minimum": low, "maximum": high}
    return schema if default is None else with_default(schema, default)


def text(description: str, longest: int, **more: Any) -> Json:
    """Schema of a string of at most `longest` characters."""
    default = more.pop("default", None)
    schema: Json = {"type": "string", "description": description, "maxLength": longest, **more}
    return schema if default is None else with_default(schema, default)


def long_duration(description: str, default: str | None = None, *, also: str = "") -> Json:
    """Schema of a duration of at least one second, in whole seconds, minutes or hours. also: a word instead of one."""
    pattern = "[1-9][0-9]{0,5}(s|m|h)"
    schema = text(description, 8, minLength=2, pattern=f"^({pattern}|{also})$" if also else f"^{pattern}$")
    return schema if default is None else with_default(schema, default)


def seconds(duration: str) -> int:
    """Whole seconds of a duration that `long_duration` accepts."""
    return int(Duration().from_field(duration))


def flag(description: str, default: bool) -> Json:
    """Schema of a boolean."""
    return with_default({"type": "boolean", "description": description}, default)


def with_default(schema: Json, default: Any) -> Json:
    """The schema with a default, which the description states: `kubectl explain` shows nothing else of it."""
    shown = str(default).lower() if isinstance(default, bool) else default
    stated = "Default:" in schema["description"]
    description = schema["description"] if stated else f"{schema['description']} Default: {shown}."
    return {**schema, "description": description, "default": default}


def duration(description: str, **more: Any) -> Json:
    """Schema of a time such as 500ms, 60s, 2m or 1h."""
    return text(description, 8, minLength=2, pattern=DURATION, **more)


def amount(description: str) -> Json:
    """Schema of a Kubernetes quantity."""
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": description,
        "pattern": PATTERN,
        "maxLength": 32,
    }


def mapping(description: str, values: Json, most: int, default: Json | None = None) -> Json:
    """Schema of a map from any key to `values`, with at most `most` entries."""
    schema: Json = {"type": "object", "description": description, "additionalProperties": values, "maxProperties": most}
    return schema if default is None else {**schema, "default": default}
