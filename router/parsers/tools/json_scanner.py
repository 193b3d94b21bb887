"""Where a JSON value ends, in text that comes in pieces, and whether it is one (RFC 8259: no NaN, no bare newlines).

Each state is a method that takes the text and a position and returns the next position:

    value --{--> first_key --"--> string --"--> colon --:--> value ... --> after --,--> key | value
          --[--> first_item                                               --} or ]--> after | done
"""

import re
from collections.abc import Callable

MAX_DEPTH = 128  # deeper ones cannot be read by every client
BLANK = " \t\n\r"
PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
NUMBER_PART = re.compile(r"[-+.0-9eE]+")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
LITERALS = ("true", "false", "null")
HEX = frozenset("0123456789abcdefABCDEF")
State = Callable[[str, int], int]


class JsonScanner:
    """Follows one value. done: it is whole. failed: the next character cannot stand where it does."""

    __slots__ = ("_closers", "_in_key", "_state", "_word", "done", "failed")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self._state: State = self._value
        self._closers: list[str] = []  # of the objects and lists that are open
        self._in_key = False
        self._word = ""  # of a number, a literal or a \\u escape

    def scan(self, text: str, at: int = 0) -> int:
        """The position up to which the text belongs to the value: its end unless done or failed."""
        while at < len(text) and not (self.done or self.failed):
            at = self._state(text, at)
        return at

    def _value(self, text: str, at: int) -> int:
        character = text[at]
        if character in BLANK:
            return at + 1
        if character == '"':
            return self._to(self._string, at + 1)
        if character in "{[":
            return self._open(character, at)
        self._word = ""
        if character in "-0123456789":
            return self._to(self._number, at)
        return self._to(self._literal, at)

    def _open(self, character: str, at: int) -> int:
        if len(self._closers) == MAX_DEPTH:
            return self._fail(at)
        self._closers.append("}" if character == "{" else "]")
        return self._to(self._first_key if character == "{" else self._first_item, at + 1)

    def _first_key(self, text: str, at: int) -> int:
        return self._close(at) if text[at] == "}" else self._key(text, at)

    def _first_item(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        return self._close(at) if text[at] == "]" else self._to(self._value, at)

    def _key(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        if text[at] != '"':
            return self._fail(at)
        self._in_key = True
        return self._to(self._string, at + 1)

    def _colon(self, text: str, at: int) -> int:
        if text[at] in BLANK:
            return at + 1
        return self._to(self._value, at + 1) if text[at] == ":" else self._fail(at)

    def _after(self, text: str, at: int) -> int:
        character = text[at]
        if character in BLANK:
            return at + 1
        if character == self._closers[-1]:
            return self._close(at)
        if character != ",":
            return self._fail(at)
        return self._to(self._key if self._closers[-1] == "}" else self._value, at + 1)

    def _string(self, text: str, at: int) -> int:
        if plain := PLAIN.match(text, at):
            return plain.end()
        if text[at] == "\\":
            return self._to(self._escape, at + 1)
        if text[at] != '"':
            return self._fail(at)
        if self._in_key:
            self._in_key = False
            return self._to(self._colon, at + 1)
        return self._ended(at + 1)

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._word = ""
            return self._to(self._hex, at + 1)
        return self._to(self._string, at + 1) if text[at] in '"\\/bfnrt' else self._fail(at)

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in HEX:
            return self._fail(at)
        self._word += text[at]
        return self._to(self._string, at + 1) if len(self._word) == 4 else at + 1

    def _number(self, text: str, at: int) -> int:
        """Its end is seen at what follows."""
        if part := NUMBER_PART.match(text, at):
            self._word += part[0]
            return part.end()
        return self._ended(at) if NUMBER.fullmatch(self._word) else self._fail(at)

    def _literal(self, text: str, at: int) -> int:
        self._word += text[at]
        if self._word in LITERALS:
            return self._ended(at + 1)
        return at + 1 if any(literal.startswith(self._word) for literal in LITERALS) else self._fail(at)

    def _close(self, at: int) -> int:
        self._closers.pop()
        return self._ended(at + 1)

    def _ended(self, at: int) -> int:
        """A value is whole, the outermost or one inside."""
        if not self._closers:
            self.done = True
            return at
        return self._to(self._after, at)

    def _to(self, state: State, at: int) -> int:
        self._state = state
        return at

    def _fail(self, at: int) -> int:
        self.failed = True
        return at
