"""Numbers and text as little-endian bytes, and back without trust."""

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Any

from octavo.worker.errors import WorkerError

_BYTES = {code: array(code).itemsize for code in ("B", "I", "Q")}
assert _BYTES == {"B": 1, "I": 4, "Q": 8}, "this platform's C types have other sizes"


class CodecError(WorkerError, ValueError):
    """Bytes that are no message of this version, or a message that bytes cannot hold."""


def pack(values: Iterable[int], code: str = "I") -> bytes:
    """code: B, I or Q: 8, 32 or 64 bits, unsigned. Raises OverflowError when a value does not fit."""
    numbers = array(code, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


class MessageReader:
    """Takes a message apart from its beginning. Raises CodecError when it is shorter than it says, or longer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise CodecError(f"message of {len(self._data)} bytes is cut short: it announces {end} or more")
        part = self._data[self._at : end]
        self._at = end
        return part

    def head(self, head: struct.Struct) -> tuple[Any, ...]:  # as the format says
        return head.unpack(self.take(head.size))

    def numbers(self, count: int, code: str = "I") -> tuple[int, ...]:
        numbers = array(code)
        numbers.frombytes(self.take(count * _BYTES[code]))
        if sys.byteorder == "big":
            numbers.byteswap()
        return tuple(numbers)

    def text(self, count: int) -> str:
        try:
            return self.take(count).decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"text of {count} bytes is not UTF-8") from error

    def end(self) -> None:
        extra = len(self._data) - self._at
        if extra:
            raise CodecError(f"message of {len(self._data)} bytes has {extra} too many")
