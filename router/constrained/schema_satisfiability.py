"""Whether a JSON schema has a finite value. Pure.

    {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}

Such a value holds one of its own kind, which holds another. A compiler does not mind: it can always go on. If there is
a value that ends, there is one in which no reference lies within itself, so each way is followed until one does.
"""

from collections.abc import Mapping
from typing import Any

Json = Any  # of any shape
MAX_VISITS = 10_000  # what is more tangled is taken as it is


def is_unsatisfiable(schema: Json) -> bool:
    """True only if every value that matches is infinitely nested."""
    return not _Search(schema).ends(schema, frozenset())


class _Search:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._visits = 0

    def ends(self, schema: Json, within: frozenset[str]) -> bool:
        """within: references that the value lies in."""
        self._visits += 1
        if not isinstance(schema, dict) or "const" in schema or "enum" in schema or self._visits > MAX_VISITS:
            return True
        return (
            self._reference(schema, within)
            and all(self.ends(one, within) for one in _list(schema.get("allOf")))
            and all(self._any(_list(schema.get(name)), within) for name in ("anyOf", "oneOf"))
            and self._inside(schema, within)
        )

    def _any(self, ways: list[Json], within: frozenset[str]) -> bool:
        return not ways or any(self.ends(one, within) for one in ways)

    def _reference(self, schema: Mapping[str, Json], within: frozenset[str]) -> bool:
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        return reference not in within and self.ends(self._target(reference), within | {reference})

    def _inside(self, schema: Mapping[str, Json], within: frozenset[str]) -> bool:
        """What an object or an array must hold; where another type is allowed, nothing."""
        kind = schema.get("type")
        if kind in ("object", ["object"]):
            properties = schema.get("properties")
            inner = properties if isinstance(properties, dict) else {}
            return all(self.ends(inner.get(name, True), within) for name in _list(schema.get("required")))
        if kind in ("array", ["array"]) and "prefixItems" not in schema and schema.get("minItems", 0) != 0:
            return self.ends(schema.get("items", True), within)
        return True

    def _target(self, reference: str) -> Json:
        """True where there is none: the compiler says so."""
        found = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or step not in found:
                return True
            found = found[step]
        return found


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
