"""Calls as Hermes and Qwen models write them: each between markers.

<tool_call>
{"name": "f", "arguments": {"a": 1}}
</tool_call>
"""

from octavo.router.tools.call import CallReader
from octavo.router.tools.events import CallAbandoned, Event
from octavo.router.tools.markers import ContentWriter, cut
from octavo.router.tools.states import StateParser

BEGIN, END = "<tool_call>", "</tool_call>"


class HermesParser(StateParser):
    """content --begin--> call --whole--> close --end--> content. The end of the text also ends a whole call."""

    def __init__(self, begin: str = BEGIN, end: str = END) -> None:
        super().__init__(self._in_content)
        self._begin, self._end = begin, end
        self._content = ContentWriter()
        self._reader = CallReader()

    def finish(self) -> list[Event]:
        events: list[Event] = []
        if self._state == self._in_call:
            self._reader.end()
            self._in_call(events)
        if self._state == self._in_content:
            events += self._content.show(self._buffer)
        return events + self._content.finish()

    def _in_content(self, events: list[Event]) -> bool:
        """Each state takes what it can from the buffer; False: it needs more text."""
        parts = cut(self._buffer, self._begin)
        events += self._content.show(parts.before)
        self._buffer = parts.rest
        if not parts.found:
            return False
        self._reader = CallReader()
        self._state = self._in_call
        return True

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
            self._state = self._in_close
        return self._reader.failed or self._reader.done

    def _not_a_call(self, events: list[Event]) -> None:
        if self._reader.begun:
            events.append(CallAbandoned())
        events += self._content.show(self._begin + self._reader.raw)
        self._state = self._in_content

    def _in_close(self, events: list[Event]) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(self._end):
            self._buffer = rest[len(self._end) :]
        elif self._end.startswith(rest):
            return False
        self._state = self._in_content
        return True
