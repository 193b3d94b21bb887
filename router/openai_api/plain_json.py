"""JsonLimits of JSON that a client hands through to a template."""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from octavo.router.openai_api.fields import invalid


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """depth: objects and lists inside each other. size: bytes when written without blanks."""

    depth: int
    size: int


def check_bounds(field: str, value: object, bounds: JsonLimits) -> None:
    """Raises RequestError 400 naming the field."""
    if _depth(value) > bounds.depth:
        raise invalid(field, f"{field} is nested deeper than {bounds.depth} levels")
    size = len(orjson.dumps(value))
    if size > bounds.size:
        raise invalid(field, f"{field} takes {size} bytes; at most {bounds.size} are allowed")


def strings(value: object) -> Iterator[str]:
    """Every string in it, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def _depth(value: object) -> int:
    """Level by level, as a decoded body may be nested deeper than Python calls."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth
