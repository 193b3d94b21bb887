"""Calls as Llama 3.x models write them: bare objects, several with `;` between, sometimes after a control token.

    {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    <|python_tag|>{"name": "f", "parameters": {"a": 1}}

Nothing marks a bare one: an object that begins a line is a call if it names one of the client's tools. Where what is no
call has a form of its own, it could hold anything: there an answer is calls if it begins just as they are written, but
for blank behind the brace.
"""

import re
from collections.abc import Collection

from octavo.router.parsers.tools.call import ObjectCallReader
from octavo.router.parsers.tools.events import ToolEvent
from octavo.router.parsers.tools.markers import split_at_marker
from octavo.router.parsers.tools.states import ObjectParser

TAG = "<|python_tag|>"
OPENING = re.compile(r"\A\{[ \t\r\n]+")
BRACE = re.compile(r"^[ \t]*\{", re.MULTILINE)


def head(name: str) -> str:
    """A call up to its arguments, as models write it."""
    return f'{{"name": "{name}", "parameters": '


class Llama3Parser(ObjectParser):
    """content --tag or brace--> call --whole--> after --brace--> call."""

    def __init__(self, names: Collection[str], tag: str = TAG, name_first: bool = False) -> None:
        """name_first: only an object that begins with its name is a call."""
        super().__init__()
        self._names, self._tag, self._name_first = names, tag, name_first
        self._fresh = True  # what was shown of this line is blank

    def _show(self, text: str) -> list[ToolEvent]:
        _, newline, last = text.rpartition("\n")
        self._fresh = (bool(newline) or self._fresh) and not last.strip(" \t")
        return super()._show(text)

    def _in_content(self, events: list[ToolEvent]) -> bool:
        """Each state takes what it can from the buffer; False: it needs more text."""
        parts = split_at_marker(self._buffer, self._tag)
        brace = self._brace(parts.before)
        if brace is not None:
            events += self._show(self._buffer[:brace])
            self._buffer = self._buffer[brace:]
            self._call("")
            return True
        events += self._show(parts.before)
        self._buffer = parts.rest
        if not parts.found:
            return False
        self._call(self._tag)
        return True

    def _brace(self, text: str) -> int | None:
        for match in BRACE.finditer(text) if "{" in text else ():
            if match.start() > 0 or self._fresh:
                return match.end() - 1
        return None

    def _call(self, opening: str) -> None:
        self._begin(opening, ObjectCallReader() if opening else ObjectCallReader(self._names, self._name_first))

    def _not_a_call(self, events: list[ToolEvent], read: str) -> None:
        super()._not_a_call(events, read)
        self._fresh = False  # or the same brace would be tried again

    def _after(self, events: list[ToolEvent]) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(";"):
            rest = rest[1:].lstrip()
        if not rest:
            return False
        if rest[0] == "{":
            self._buffer = rest
            self._call(self._opening)
        else:
            self._state = self._in_content
        return True


class FormedLlama3Parser(Llama3Parser):
    """Of an answer that a grammar binds to a form, or to calls."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(names, name_first=True)
        self._heads = [head(name) for name in names]
        self._begun = False

    def _in_content(self, events: list[ToolEvent]) -> bool:
        """Before the first call, or where there is none."""
        if not self._begun:
            text = OPENING.sub("{", self._buffer)
            if any(text.startswith(one) for one in self._heads):
                self._begun = True
                self._call("")
                return True
            if any(one.startswith(text) for one in self._heads):
                return False
            self._begun = True
        events += self._show(self._buffer)
        self._buffer = ""
        return False
