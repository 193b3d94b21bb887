"""As much of JSON Schema as /openapi.json uses: what a value breaks, in words."""

import re
from collections.abc import Iterator
from typing import Any

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: type(v) is int,
    "number": lambda v: type(v) in (int, float),
}
KEYWORDS = frozenset(
    "type enum const anyOf $ref properties required additionalProperties items minItems maxItems maxProperties "
    "minLength maxLength pattern minimum maximum exclusiveMinimum description".split()
)


def problems(value: Any, schema: dict[str, Any], document: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Any: JSON."""
    assert schema.keys() <= KEYWORDS, f"{schema.keys() - KEYWORDS} is not known here"
    if "$ref" in schema:
        name = re.fullmatch(r"#/components/schemas/(\w+)", schema["$ref"])
        assert name is not None
        yield from problems(value, document["components"]["schemas"][name[1]], document, where)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[name](value) for name in types):
        yield f"{where} is not {types}: {value!r}"
        return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{where} is not one of {schema['enum']}: {value!r}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} is not {schema['const']!r}: {value!r}"
    if "anyOf" in schema and all(any(problems(value, one, document, where)) for one in schema["anyOf"]):
        yield f"{where} is none of what it may be: {value!r}"
    yield from _inside(value, schema, document, where)


def _inside(value: Any, schema: dict[str, Any], document: dict[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _object(value, schema, document, where)
    elif isinstance(value, list):
        yield from _bounded(len(value), schema, "Items", where)
        for index, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), document, f"{where}[{index}]")
    elif isinstance(value, str):
        yield from _bounded(len(value), schema, "Length", where)
        if not re.search(schema.get("pattern", ""), value):
            yield f"{where} does not match {schema['pattern']}: {value!r}"
    elif type(value) in (int, float):
        yield from _bounded(value, schema, "imum", where)
        if value <= schema.get("exclusiveMinimum", value - 1):
            yield f"{where} is out of its bounds: {value}"


def _object(value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], where: str) -> Iterator[str]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
    yield from _bounded(len(value), schema, "Properties", where)
    for name, item in value.items():
        if name not in properties and more is False:
            yield f"{where}.{name} may not be"
        else:
            yield from problems(item, properties.get(name, more or {}), document, f"{where}.{name}")


def _bounded(size: float, schema: dict[str, Any], what: str, where: str) -> Iterator[str]:
    if not schema.get(f"min{what}", size) <= size <= schema.get(f"max{what}", size):
        yield f"{where} is out of its bounds: {size}"


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)
