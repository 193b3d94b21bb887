"""One call in text that comes in pieces, as an object that has its name and arguments, in any order.

    {"name": "f", "arguments": {"a": 1}}
       first key colon  value  next ...          each state of the reader takes the text from a position on

Arguments are shown as they come once the name is known. With whole arguments it is a call, even where the text goes on
as no object does or ends too soon; a reader that fails before has its whole text in `raw`.
"""

from collections.abc import Callable, Collection

import orjson

from octavo.router.parsers.tools.events import CallArguments, CallBegin, CallEnd, ToolEvent
from octavo.router.parsers.tools.json_scanner import BLANK, JsonScanner

ARGUMENTS = frozenset(("arguments", "parameters"))
NAME = frozenset(("name",))
EXPECTED = ARGUMENTS | NAME | {"type", "id"}


class ObjectCallReader:
    """A call as one object. among: names and keys it must have to be a call, where no marker says that it is one;
    name_first: and then its name is the first of its keys."""

    def __init__(self, among: Collection[str] | None = None, name_first: bool = False) -> None:
        self.done = self.failed = self.begun = False
        self.beyond = ""
        self._among = among
        self._keys: Collection[str] = NAME if name_first else EXPECTED  # that may come now
        self._state: Callable[[str, int], int] = self._open
        self._read: list[str] = []
        self._events: list[ToolEvent] = []
        self._key = ""
        self._name: str | None = None
        self._arguments: str | None = None  # whole, but not yet shown; once begun, ""
        self._scanner = JsonScanner()  # of the key or value under way
        self._value: list[str] = []
        self._shows = False  # the value under way goes out as it comes
        self._after: list[str] | None = None  # what was read since the arguments were whole

    def push(self, text: str) -> int:
        at = 0
        while at < len(text) and not (self.done or self.failed):
            before, whole = at, self._after is not None
            at = self._state(text, at)
            if whole and self._after is not None:
                self._after.append(text[before:at])
        self._read.append(text[:at])
        self._settle()
        return at

    def end(self) -> None:
        self.failed = not self.done
        self._settle()

    def take(self) -> list[ToolEvent]:
        events, self._events = self._events, []
        return events

    @property
    def raw(self) -> str:
        return "".join(self._read)

    def _settle(self) -> None:
        """What fails after whole arguments ends the call there."""
        if self.failed and self._after is not None:
            self.failed, self.done = False, True
            self.beyond = "".join(self._after)
            self._events.append(CallEnd())

    def _open(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        return self._to(self._first, at + 1) if text[at] == "{" else self._fail(at)

    def _first(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        return self._begin_value(self._in_key, at) if text[at] == '"' else self._fail(at)

    def _begin_value(self, state: Callable[[str, int], int], at: int) -> int:
        self._scanner, self._value = JsonScanner(), []
        return self._to(state, at)

    def _in_key(self, text: str, at: int) -> int:
        end = self._scanner.scan(text, at)
        self._value.append(text[at:end])
        if self._scanner.failed or self._is_other(self._keys):
            return self._fail(end)
        if self._scanner.done:
            key = _loaded("".join(self._value))
            if not isinstance(key, str) or (self._among is not None and key not in self._keys):
                return self._fail(end)
            self._key, self._keys = key, EXPECTED
            self._state = self._colon
        return end

    def _colon(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        return self._to(self._before_value, at + 1) if text[at] == ":" else self._fail(at)

    def _before_value(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        if self._key in ARGUMENTS and (self.begun or self._arguments is not None):
            return self._fail(at)  # twice
        self._shows = self._key in ARGUMENTS and text[at] == "{" and self._name is not None
        if self._shows:
            self._show("")
        return self._begin_value(self._in_value, at)

    def _in_value(self, text: str, at: int) -> int:
        end = self._scanner.scan(text, at)
        if not self._shows:
            self._value.append(text[at:end])
        elif end > at:
            self._events.append(CallArguments(text[at:end]))
        if self._scanner.failed or (self._key == "name" and self._is_other(self._among or ())):
            return self._fail(end)
        if self._scanner.done:
            return self._value_done(end)
        return end

    def _is_other(self, names: Collection[str]) -> bool:
        """Where no marker says that it is a call, a text that begins otherwise is shown at once."""
        if self._among is None or self._scanner.done:
            return False
        begun = "".join(self._value)
        return not any(f'"{name}'.startswith(begun) for name in names)

    def _value_done(self, at: int) -> int:
        value = "".join(self._value)
        if self._key == "name" and not self._named(_loaded(value)):
            return self._fail(at)
        if self._key in ARGUMENTS and not self._shows:
            self._arguments = _object(value)
            if self._arguments is None:
                return self._fail(at)
        if self._name is not None and self._arguments and not self.begun:
            self._show(self._arguments)
        if self.begun and self._after is None:
            self._after = []
        return self._to(self._next, at)

    def _named(self, name: object) -> bool:
        if not isinstance(name, str) or not name or self._name is not None:
            return False
        self._name = name
        return self._among is None or name in self._among

    def _show(self, arguments: str) -> None:
        assert self._name is not None, "arguments are shown once the name is known"
        self.begun = True
        self._events.append(CallBegin(self._name))
        if arguments:
            self._events.append(CallArguments(arguments))

    def _next(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        if text[at] == ",":
            return self._to(self._first, at + 1)
        return self._complete(at) if text[at] == "}" else self._fail(at)

    def _complete(self, at: int) -> int:
        """Arguments may be left out where a marker says that it is a call."""
        if not self.begun:
            if self._name is None or self._among is not None:
                return self._fail(at)
            self._show("{}")
        self._events.append(CallEnd())
        self.done = True
        return at + 1

    def _to(self, state: Callable[[str, int], int], at: int) -> int:
        self._state = state
        return at

    def _fail(self, at: int) -> int:
        self.failed = True
        return at


def _loaded(text: str) -> object:
    """None for what cannot be read, such as half a surrogate pair."""
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value


def _object(text: str) -> str | None:
    """An arguments' value that is an object, says none (null), or is a string that spells an object."""
    value = _loaded(text)
    if isinstance(value, str):
        return value if isinstance(_loaded(value), dict) else None
    if isinstance(value, dict):
        return text
    return "{}" if text == "null" else None
