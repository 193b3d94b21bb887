"""What the tool parsers share: a buffer, and one state at a time that takes from it what it can."""

from collections.abc import Callable

from octavo.router.tools.events import Event


class StateParser:
    """A state adds what it finds to the events, and may choose the next one; False: it needs more text."""

    def __init__(self, first: Callable[[list[Event]], bool]) -> None:
        self._buffer = ""
        self._state = first

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        self._buffer += text
        while self._state(events):
            pass
        return events
