"""String interning: cached objects share equal strings, which halves the memory of a thousand services.

Each answer of the API server is parsed separately, so that each object has its own "metadata", "containerPort" and
image name. Strings in Python's own intern table would stay for ever (3.12).
"""

from typing import Any, TypeVar

Json = TypeVar("Json")

MAX_STRINGS = 20_000  # then the table is cleared; later objects share strings only with each other
MAX_LENGTH = 64  # characters: longer strings are seldom equal


class StringInterner:
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def interned(self, value: Json) -> Json:
        """A copy of the JSON with shared strings."""
        if len(self._known) > MAX_STRINGS:
            self._known.clear()
        return self._interned(value)  # type: ignore[no-any-return]  # JSON of the same shape

    def _interned(self, value: Any) -> Any:  # Any: JSON
        if isinstance(value, dict):
            known = self._known.setdefault
            return {known(key, key): self._interned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._interned(item) for item in value]
        if isinstance(value, str) and len(value) <= MAX_LENGTH:
            return self._known.setdefault(value, value)
        return value
