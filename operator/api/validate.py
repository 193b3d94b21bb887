"""Checks JSON against a structural schema and fills in its defaults, as the API server does; and the form of rules."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.errors import OperatorError

Json = Mapping[str, Any]  # Any: JSON

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
}


class SpecError(OperatorError, ValueError):
    """A field has an invalid value. field: its path; message: what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule across fields: as CEL, evaluated by the API server at `at`, and as a function of the whole resource."""

    at: str  # "" is the whole resource, else a path such as spec.rollout
    cel: str
    field: str  # path of the field in the error
    message: str
    holds: Callable[[Json], bool]


def complete(schema: Json, value: Any, path: str) -> Any:  # Any: JSON
    """`value` with all defaults filled in. Raises SpecError naming the field."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SpecError(path, f"expected a number or a string, found {_shown(value)}")
        _check_text(schema, str(value), path)
        return value
    kind = schema["type"]
    _check_type(kind, value, path)
    if kind == "object":
        return _complete_object(schema, value, path)
    if kind == "array":
        _check_count(schema, len(value), path, "Items")
        return [complete(schema["items"], item, f"{path}[{index}]") for index, item in enumerate(value)]
    if kind == "integer":
        _check_bounds(schema, value, path)
    if kind == "string":
        _check_text(schema, value, path)
    return value


def _complete_object(schema: Json, value: Json, path: str) -> Json:
    fields: Json = schema.get("properties", {})
    _check_count(schema, len(value), path, "Properties")
    given = {key: item for key, item in value.items() if item is not None}  # null is an absent field
    result = {key: _complete_field(schema, key, item, path) for key, item in given.items()}
    for key, field in fields.items():
        if key not in result and "default" in field:
            result[key] = complete(field, field["default"], _join(path, key))
    for key in schema.get("required", ()):
        if key not in result:
            raise SpecError(_join(path, key), "is required")
    return result


def _complete_field(schema: Json, key: str, item: Any, path: str) -> Any:  # Any: JSON
    fields: Json = schema.get("properties", {})
    if key in fields:
        return complete(fields[key], item, _join(path, key))
    if "additionalProperties" in schema:
        return complete(schema["additionalProperties"], item, f"{path}[{key}]")
    if path == "metadata":
        return item  # the API server's own
    raise SpecError(_join(path, key), f"unknown field; {path or 'the resource'} has {', '.join(sorted(fields))}")


def _check_type(kind: str, value: object, path: str) -> None:
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        article = "an" if kind[0] in "aio" else "a"
        raise SpecError(path or "(resource)", f"expected {article} {kind}, found {_shown(value)}")


def _check_bounds(schema: Json, value: int, path: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        raise SpecError(path, f"must be {low} to {high}, found {value}")


def _check_text(schema: Json, text: str, path: str) -> None:
    if "enum" in schema and text not in schema["enum"]:
        raise SpecError(path, f"must be one of {', '.join(schema['enum'])}, found {_shown(text)}")
    _check_count(schema, len(text), path, "Length")
    # The API server's `$` is the end of the text, Python's also stands before a last newline.
    if "pattern" in schema and not re.search(re.sub(r"\$\Z", r"\\Z", schema["pattern"]), text):
        raise SpecError(path, f"{_shown(text)} does not match {schema['pattern']}")


def _check_count(schema: Json, count: int, path: str, what: str) -> None:
    low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    noun = {"Items": "items", "Properties": "entries", "Length": "characters"}[what]
    if count < low or (high is not None and count > high):
        raise SpecError(path or "(resource)", f"must have {low} to {high} {noun}, found {count}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
