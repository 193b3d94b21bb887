"""Calls as Mistral models write them: after a control token, as a list of objects or each with its name before it.

[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]
[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g[CALL_ID]a1b2c3d4e[ARGS]{}
"""

import re

from octavo.router.parsers.tools.call import ObjectCallReader
from octavo.router.parsers.tools.events import CallAbandoned, ToolEvent
from octavo.router.parsers.tools.markers import split_at_marker
from octavo.router.parsers.tools.reader import ArgumentsReader
from octavo.router.parsers.tools.states import State, StateParser

BEGIN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
MAX_HEADER = 160  # characters between the marker and the arguments: a name, an id


class MistralParser(StateParser):
    """content --begin--> form --[--> list --{--> call --whole--> list ... --]--> content
    '--name {--> call --whole--> content
    """

    def __init__(self, begin: str = BEGIN, args: str = ARGS, call_id: str = CALL_ID) -> None:
        super().__init__()
        self._begin = begin
        self._header = re.compile(
            rf"\s*([\w.-]+)\s*(?:{re.escape(call_id)}\s*\w*\s*)?(?:{re.escape(args)}\s*)?", re.ASCII
        )
        self._raw = ""  # since the marker or the last whole call, without what the reader has
        self._listed = False

    def finish(self) -> list[ToolEvent]:
        events: list[ToolEvent] = []
        if self._state == self._in_call:
            self._reader.end()
            self._in_call(events)
        elif self._state == self._in_form or self._raw.strip(" ,"):
            self._not_a_call(events, "")
        if self._state == self._in_content:
            events += self._content.show(self._buffer)
        return events + self._content.finish()

    def _in_content(self, events: list[ToolEvent]) -> bool:
        """Each state takes what it can from the buffer; False: it needs more text."""
        parts = split_at_marker(self._buffer, self._begin)
        events += self._content.show(parts.before)
        self._buffer = parts.rest
        if not parts.found:
            return False
        self._raw, self._listed = self._begin, False
        self._state = self._in_form
        return True

    def _in_form(self, events: list[ToolEvent]) -> bool:
        rest = self._buffer.lstrip()
        if not rest:
            return False
        if rest[0] == "[":
            self._take(len(self._buffer) - len(rest) + 1)
            self._listed = True
            self._state = self._in_list
            return True
        if rest[0] == "{":
            self._read(ObjectCallReader())
            return True
        return self._in_header(events)

    def _in_header(self, events: list[ToolEvent]) -> bool:
        brace = self._buffer.find("{")
        if brace < 0 and len(self._buffer) <= MAX_HEADER:
            return False
        header = self._header.fullmatch(self._buffer, 0, brace) if 0 <= brace <= MAX_HEADER else None
        if header is None:
            self._not_a_call(events, "")
        else:
            self._take(brace)
            self._read(ArgumentsReader(header[1]))
        return True

    def _in_list(self, events: list[ToolEvent]) -> bool:
        """Before an object, or at the end of the list."""
        rest = self._buffer.lstrip()
        if not rest:
            return False
        if rest[0] == "{":
            self._read(ObjectCallReader())
        elif rest[0] == "]":
            self._buffer = rest[1:]
            self._end_list(events)
        else:
            self._not_a_call(events, "")
        return True

    def _end_list(self, events: list[ToolEvent]) -> None:
        if self._raw:  # a list without a call
            self._not_a_call(events, "]")
        self._state = self._in_content

    def _whole(self) -> State:
        self._raw = ""
        return self._after_object if self._listed else self._in_content

    def _after_object(self, events: list[ToolEvent]) -> bool:
        rest = self._buffer.lstrip()
        if not rest:
            return False
        if rest[0] == ",":
            self._take(len(self._buffer) - len(rest) + 1)
            self._state = self._in_list
            return True
        self._buffer = rest[1:] if rest[0] == "]" else self._buffer
        self._state = self._in_content
        return True

    def _take(self, size: int) -> None:
        self._raw += self._buffer[:size]
        self._buffer = self._buffer[size:]

    def _not_a_call(self, events: list[ToolEvent], read: str) -> None:
        if self._state == self._in_call and self._reader.begun:
            events.append(CallAbandoned())
        events += self._content.show(self._raw + read)
        self._raw = ""
        self._state = self._in_content
