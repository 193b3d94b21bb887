"""Calls as Hermes and Qwen models write them: each between markers.

<tool_call>
{"name": "f", "arguments": {"a": 1}}
</tool_call>
"""

from octavo.router.parsers.tools.call import ObjectCallReader
from octavo.router.parsers.tools.events import ToolEvent
from octavo.router.parsers.tools.markers import split_at_marker
from octavo.router.parsers.tools.states import ObjectParser

BEGIN, END = "<tool_call>", "</tool_call>"


class HermesParser(ObjectParser):
    """content --begin--> call --whole--> after --end--> content. The end of the text also ends a whole call."""

    def __init__(self, begin: str = BEGIN, end: str = END) -> None:
        super().__init__()
        self._marker, self._end = begin, end

    def _in_content(self, events: list[ToolEvent]) -> bool:
        """Each state takes what it can from the buffer; False: it needs more text."""
        parts = split_at_marker(self._buffer, self._marker)
        events += self._show(parts.before)
        self._buffer = parts.rest
        if parts.found:
            self._begin(self._marker, ObjectCallReader())
        return parts.found

    def _after(self, events: list[ToolEvent]) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(self._end):
            self._buffer = rest[len(self._end) :]
        elif self._end.startswith(rest):
            return False
        self._state = self._in_content
        return True
