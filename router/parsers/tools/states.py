"""What the tool parsers share: a buffer, and one state at a time that takes from it what it can."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from octavo.router.parsers.tools.call import ObjectCallReader
from octavo.router.parsers.tools.events import CallAbandoned, ToolEvent
from octavo.router.parsers.tools.markers import ContentWriter
from octavo.router.parsers.tools.reader import CallReader

State = Callable[[list[ToolEvent]], bool]


class StateParser(ABC):
    """A state adds what it finds to the events, and may choose the next one; False: it needs more text."""

    def __init__(self) -> None:
        self._buffer = ""
        self._state: State = self._in_content
        self._content = ContentWriter()
        self._reader: CallReader = ObjectCallReader()

    def push(self, text: str) -> list[ToolEvent]:
        events: list[ToolEvent] = []
        self._buffer += text
        while self._state(events):
            pass
        return events

    @abstractmethod
    def _in_content(self, events: list[ToolEvent]) -> bool:
        """Up to where a call begins."""

    @abstractmethod
    def _whole(self) -> State:
        """A call has ended: what comes now."""

    @abstractmethod
    def _not_a_call(self, events: list[ToolEvent], read: str) -> None:
        """What the reader has read is content, and what stood before it."""

    def _read(self, reader: CallReader) -> None:
        self._reader = reader
        self._state = self._in_call

    def _in_call(self, events: list[ToolEvent]) -> bool:
        end = self._reader.push(self._buffer)
        self._buffer = self._buffer[end:]
        events += self._reader.take()
        if self._reader.begun:
            self._content.call()
        if self._reader.failed:
            self._not_a_call(events, self._reader.raw)
        elif self._reader.done:
            events += self._content.show(self._reader.beyond)
            self._state = self._whole()
        return self._reader.failed or self._reader.done


class ObjectParser(StateParser):
    """content --> call --whole--> after, for formats in which each call is an object of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._opening = ""  # the marker, where one stood before the call

    def finish(self) -> list[ToolEvent]:
        events: list[ToolEvent] = []
        if self._state == self._in_call:
            self._reader.end()
            self._in_call(events)
        if self._state == self._in_content:
            events += self._show(self._buffer)
        return events + self._content.finish()

    @abstractmethod
    def _after(self, events: list[ToolEvent]) -> bool:
        """Behind a whole call."""

    def _show(self, text: str) -> list[ToolEvent]:
        return self._content.show(text)

    def _begin(self, opening: str, reader: ObjectCallReader) -> None:
        self._opening = opening
        self._read(reader)

    def _whole(self) -> State:
        return self._after

    def _not_a_call(self, events: list[ToolEvent], read: str) -> None:
        if self._reader.begun:
            events.append(CallAbandoned())
        events += self._show(self._opening + read)
        self._state = self._in_content
