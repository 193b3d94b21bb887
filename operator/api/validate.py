"""Checks JSON against a structural schema and fills in its defaults, as the API server does; and the form of rules.

Of a file each field must be known. A resource of the API server may have been written for the CRD of a newer release:
what this one does not know is then left out and reported, see `Unknown`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.errors import OperatorError

Json = Mapping[str, Any]  # Any: JSON
Steps = tuple[str | int, ...]  # from the resource to a value of it

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
class Unknown:
    """A field that the schema does not have, or an optional one with a value that its enum does not have."""

    path: str  # such as spec.engine.speculation
    steps: Steps  # the same as keys and indexes
    value: Any  # Any: JSON
    of_enum: bool  # the value is what is unknown

    @property
    def shown(self) -> str:
        return f"{self.path}: {_shown(self.value)}" if self.of_enum else self.path


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule across fields: as CEL, evaluated by the API server at `at`, and as a function of the whole resource."""

    at: str  # "" is the whole resource, else a path such as spec.rollout
    cel: str
    field: str  # path of the field in the error
    message: str
    holds: Callable[[Json], bool]


def complete(schema: Json, value: Any, unknown: list[Unknown] | None = None) -> Any:  # Any: JSON
    """The resource `value` with all defaults filled in. Raises SpecError naming the field.

    unknown: takes what the schema does not know, which the result is without; None: that is an error.
    """
    return _Completion(unknown).complete(schema, value, "", ())


@dataclass(frozen=True, slots=True)
class _Completion:
    unknown: list[Unknown] | None

    def complete(self, schema: Json, value: Any, path: str, steps: Steps) -> Any:  # Any: JSON
        if schema.get("x-kubernetes-int-or-string"):
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise SpecError(path, f"expected a number or a string, found {_shown(value)}")
            _check_text(schema, str(value), path)
            return value
        kind = schema["type"]
        _check_type(kind, value, path)
        if kind == "object":
            return self._object(schema, value, path, steps)
        if kind == "array":
            _check_count(schema, len(value), path, "Items")
            items = enumerate(value)
            return [self.complete(schema["items"], item, f"{path}[{index}]", (*steps, index)) for index, item in items]
        if kind == "integer":
            _check_bounds(schema, value, path)
        if kind == "string":
            _check_text(schema, value, path)
        return value

    def _object(self, schema: Json, value: Json, path: str, steps: Steps) -> Json:
        fields: Json = schema.get("properties", {})
        _check_count(schema, len(value), path, "Properties")
        result = {}
        for key, item in value.items():
            if item is None:  # an absent field
                continue
            inner = (*steps, key)
            if self._is_unknown(schema, key, item, path, inner):
                continue
            if key in fields:
                result[key] = self.complete(fields[key], item, _join(path, key), inner)
            elif "additionalProperties" in schema:
                result[key] = self.complete(schema["additionalProperties"], item, f"{path}[{key}]", inner)
            else:
                result[key] = item  # of metadata, the API server's own
        for key, field in fields.items():
            if key not in result and "default" in field:
                result[key] = self.complete(field, field["default"], _join(path, key), (*steps, key))
        for key in schema.get("required", ()):
            if key not in result:
                raise SpecError(_join(path, key), "is required")
        return result

    def _is_unknown(self, schema: Json, key: str, item: Any, path: str, steps: Steps) -> bool:
        """Whether a field is left out, which is then reported. Raises SpecError for one of a file. Any: JSON."""
        fields: Json = schema.get("properties", {})
        is_field = key in fields or "additionalProperties" in schema or path == "metadata"
        if self.unknown is None:
            if not is_field:
                has = ", ".join(sorted(fields))
                raise SpecError(_join(path, key), f"unknown field; {path or 'the resource'} has {has}")
            return False
        enum = fields.get(key, {}).get("enum")
        of_enum = (
            enum is not None and isinstance(item, str) and item not in enum and key not in schema.get("required", ())
        )
        if is_field and not of_enum:
            return False
        self.unknown.append(Unknown(_join(path, key), steps, item, of_enum))
        return True


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
