"""Separates reasoning that a model marks in its answer from its content, in text that comes in pieces.

    <think>            start --begin--> inside --end--> after --text--> outside
    Let me see.          '--other text--> outside
    </think>
    It is 4.           A template may write the begin itself: then the answer starts inside.

Line breaks next to the markers belong to neither.
"""

from collections.abc import Callable
from typing import Literal

from octavo.router.parsers.tools.markers import split_at_marker

BEGIN, END = "<think>", "</think>"
Thought = Literal["none", "begun", "over"]  # the answer may begin with it; has to close it; has none


def detect(template: str) -> bool:
    return BEGIN in template or END in template


def thought_of(prompt: str) -> Thought:
    """How far the end of a prompt, which its template wrote, has brought it. prompt: the last of it."""
    prompt = prompt.rstrip()
    return "begun" if prompt.endswith(BEGIN) else "over" if prompt.endswith(END) else "none"


def thought_in(message: str) -> Thought:
    """The same of a message that the answer continues."""
    begin, end = message.rfind(BEGIN), message.rfind(END)
    return "begun" if begin > end else "over" if end >= 0 else "none"


class ReasoningParser:
    """One answer's text. Each call returns (reasoning, content): what comes in both is in this order."""

    def __init__(self, opened: bool, begin: str = BEGIN, end: str = END) -> None:
        self._begin, self._end = begin, end
        self._state: Callable[[], tuple[str, str]] = self._inside if opened else self._start
        self._shown = False  # some reasoning
        self._buffer = ""

    def push(self, text: str) -> tuple[str, str]:
        if self._state == self._outside:
            return "", text
        self._buffer += text
        return self._state()

    def finish(self) -> tuple[str, str]:
        held, self._buffer = self._buffer, ""
        if self._state == self._inside:
            return (held if self._shown else held.lstrip("\n")), ""
        return "", "" if self._state == self._after else held

    def _start(self) -> tuple[str, str]:
        text = self._buffer.lstrip()
        if text.startswith(self._begin):
            self._buffer = text[len(self._begin) :]
            self._state = self._inside
            return self._inside()
        return ("", "") if self._begin.startswith(text) else self._leave()

    def _inside(self) -> tuple[str, str]:
        parts = split_at_marker(self._buffer, self._end)
        shown = parts.before.rstrip("\n")
        self._buffer = self._buffer[len(shown) :]
        if not self._shown:
            shown = shown.lstrip("\n")
        self._shown = self._shown or bool(shown)
        if not parts.found:
            return shown, ""
        self._buffer = parts.rest
        self._state = self._after
        return shown, self._after()[1]

    def _after(self) -> tuple[str, str]:
        self._buffer = self._buffer.lstrip("\n")
        return self._leave() if self._buffer else ("", "")

    def _leave(self) -> tuple[str, str]:
        self._state = self._outside
        return self._outside()

    def _outside(self) -> tuple[str, str]:
        text, self._buffer = self._buffer, ""
        return "", text
