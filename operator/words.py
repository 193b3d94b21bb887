"""One copy of each word that objects of a kind have in common, which halves what a thousand services take.

Every answer of the API server is parsed for itself, so that each object brings its own "metadata", "containerPort" and
image name. Python's own table of interned strings would keep them for ever (3.12).
"""

from typing import Any, TypeVar

Json = TypeVar("Json")

MOST = 20_000  # words; then it begins anew, and only what comes later shares its words with what comes later still
LONGEST = 64  # characters: longer texts are seldom the same


class Words:
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def shared(self, value: Json) -> Json:
        """The same JSON, made of known words; what was given stays as it is."""
        if len(self._known) > MOST:
            self._known.clear()
        return self._shared(value)  # type: ignore[no-any-return]  # JSON of the same shape

    def _shared(self, value: Any) -> Any:  # Any: JSON
        if isinstance(value, dict):
            known = self._known.setdefault
            return {known(key, key): self._shared(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._shared(item) for item in value]
        if isinstance(value, str) and len(value) <= LONGEST:
            return self._known.setdefault(value, value)
        return value
