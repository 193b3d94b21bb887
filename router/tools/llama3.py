"""Calls as Llama 3.x models write them: bare objects, several with `;` between, sometimes after a control token.

    {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    <|python_tag|>{"name": "f", "parameters": {"a": 1}}

Nothing marks a bare one: an object that begins a line is a call if it names one of the client's tools.
"""

import re
from collections.abc import Collection

from octavo.router.tools.call import CallReader
from octavo.router.tools.events import CallAbandoned, Event
from octavo.router.tools.markers import ContentWriter, cut
from octavo.router.tools.states import StateParser

TAG = "<|python_tag|>"
BRACE = re.compile(r"^[ \t]*\{", re.MULTILINE)


class Llama3Parser(StateParser):
    """content --tag or brace--> call --whole--> between --brace--> call."""

    def __init__(self, names: Collection[str], tag: str = TAG) -> None:
        super().__init__(self._in_content)
        self._names, self._tag = names, tag
        self._content = ContentWriter()
        self._reader = CallReader()
        self._opening = ""  # the tag, where one stood before the call
        self._fresh = True  # what was shown of this line is blank

    def finish(self) -> list[Event]:
        events: list[Event] = []
        if self._state == self._in_call:
            self._reader.end()
            self._in_call(events)
        if self._state == self._in_content:
            events += self._show(self._buffer)
        return events + self._content.finish()

    def _show(self, text: str) -> list[Event]:
        _, newline, last = text.rpartition("\n")
        self._fresh = (bool(newline) or self._fresh) and not last.strip(" \t")
        return self._content.show(text)

    def _in_content(self, events: list[Event]) -> bool:
        """Each state takes what it can from the buffer; False: it needs more text."""
        parts = cut(self._buffer, self._tag)
        brace = self._brace(parts.before)
        if brace is not None:
            events += self._show(self._buffer[:brace])
            self._buffer = self._buffer[brace:]
            self._begin("")
            return True
        events += self._show(parts.before)
        self._buffer = parts.rest
        if not parts.found:
            return False
        self._begin(self._tag)
        return True

    def _brace(self, text: str) -> int | None:
        for match in BRACE.finditer(text) if "{" in text else ():
            if match.start() > 0 or self._fresh:
                return match.end() - 1
        return None

    def _begin(self, opening: str) -> None:
        self._opening = opening
        self._reader = CallReader(None if opening else self._names)
        self._state = self._in_call

    def _in_call(self, events: list[Event]) -> bool:
        end = self._reader.push(self._buffer)
        self._buffer = self._buffer[end:]
        events += self._reader.take()
        if self._reader.begun:
            self._content.call()
        if self._reader.failed:
            self._not_a_call(events)
        elif self._reader.done:
            events += self._content.show(self._reader.beyond)
            self._state = self._between
        return self._reader.failed or self._reader.done

    def _not_a_call(self, events: list[Event]) -> None:
        if self._reader.begun:
            events.append(CallAbandoned())
        events += self._show(self._opening + self._reader.raw)
        self._fresh = False  # or the same brace would be tried again
        self._state = self._in_content

    def _between(self, events: list[Event]) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(";"):
            rest = rest[1:].lstrip()
        if not rest:
            return False
        if rest[0] == "{":
            self._buffer = rest
            self._begin(self._opening)
        else:
            self._fresh = True
            self._state = self._in_content
        return True
