"""Readers of one call in text that comes in pieces; the one here is for arguments whose name stood before them."""

from typing import Protocol

from octavo.router.parsers.tools.events import CallArguments, CallBegin, CallEnd, ToolEvent
from octavo.router.parsers.tools.json_scanner import JsonScanner


class CallReader(Protocol):
    """done: the call is whole. failed: it is none. begun: its name has been emitted. beyond: text after a whole
    call."""

    done: bool
    failed: bool
    begun: bool
    beyond: str

    def push(self, text: str) -> int:
        """How much of the text belongs to the call: all of it unless it is done or failed."""

    def end(self) -> None:
        """The text has ended: it is done or failed."""

    def take(self) -> list[ToolEvent]:
        """The events since last asked."""

    @property
    def raw(self) -> str:
        """All that was pushed and belongs to it."""


class ArgumentsReader:
    """The arguments of a call whose name is known already."""

    def __init__(self, name: str) -> None:
        self.done = self.failed = self.begun = False
        self.beyond = ""
        self._name = name
        self._scanner = JsonScanner()
        self._read: list[str] = []
        self._events: list[ToolEvent] = []

    def push(self, text: str) -> int:
        if not self.begun:
            self.begun = True
            self._events.append(CallBegin(self._name))
        end = self._scanner.scan(text)
        if end:
            self._read.append(text[:end])
            self._events.append(CallArguments(text[:end]))
        self.done, self.failed = self._scanner.done, self.failed or self._scanner.failed
        if self.done:
            self._events.append(CallEnd())
        return end

    def end(self) -> None:
        self.failed = not self.done

    def take(self) -> list[ToolEvent]:
        events, self._events = self._events, []
        return events

    @property
    def raw(self) -> str:
        return "".join(self._read)
