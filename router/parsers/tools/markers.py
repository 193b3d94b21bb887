"""Markers in text that comes in pieces: found whole, held back while they may still become whole."""

from dataclasses import dataclass

from octavo.router.parsers.tools.events import Content, ToolEvent


@dataclass(frozen=True, slots=True)
class MarkerSplit:
    """before: holds no marker. rest: what follows the marker; where none is found, the end that may become one."""

    before: str
    found: bool
    rest: str


def split_at_marker(text: str, marker: str) -> MarkerSplit:
    """At the first one."""
    at = text.find(marker)
    if at >= 0:
        return MarkerSplit(text[:at], True, text[at + len(marker) :])
    kept = len(text) - _begun(text, marker)
    return MarkerSplit(text[:kept], False, text[kept:])


def _begun(text: str, marker: str) -> int:
    """How much of the marker the text ends with, short of all of it."""
    if marker[0] not in text:  # as in nearly all text
        return 0
    for size in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


class ContentWriter:
    """Content between calls. Blank that only sets calls apart is dropped: it is shown once other text follows."""

    def __init__(self) -> None:
        self._held = ""
        self._apart = True  # since the start, or the last call, nothing but blank
        self._called = False

    def show(self, text: str) -> list[ToolEvent]:
        if self._apart:
            text = self._held + text
            if not text or text.isspace():
                self._held = text
                return []
            self._held, self._apart = "", False
        return [Content(text)] if text else []

    def call(self) -> None:
        """A call has begun."""
        self._held, self._apart, self._called = "", True, True

    def finish(self) -> list[ToolEvent]:
        """An answer of blank alone is its content."""
        held, self._held = self._held, ""
        return [Content(held)] if held and not self._called else []
