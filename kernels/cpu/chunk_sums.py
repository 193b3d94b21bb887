"""Keyed sums of each 32 KiB of some bytes, by csrc/cpu/chunk_sums.cpp; where that was not compiled, by NumPy, with the
same results at a tenth of the speed. Python's lock is not held meanwhile."""

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIBRARY = Path(__file__).resolve().parents[1] / "lib" / "chunk_sums.so"
CHUNK_BYTES = 32 << 10
SHIFT = 4  # words between the keys of the two sums
_WORDS = CHUNK_BYTES // 4

Bytes = NDArray[np.uint8]


@cache
def _keys() -> NDArray[np.uint32]:
    """Always the same: digests are compared across releases."""
    drawn = hashlib.shake_128(b"octavo: keys of chunk sums").digest(4 * (_WORDS + SHIFT))
    return np.frombuffer(drawn, "<u4")


@cache
def _native() -> Any:
    """The compiled function; None where there is none."""
    try:
        function = ctypes.CDLL(str(LIBRARY)).chunk_sums
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = None
    return function


def chunk_sums(data: Bytes) -> bytes:
    """Two uint64 for each chunk of `data`, [n], contiguous; the last chunk may be shorter."""
    if (native := _native()) is None:
        return plain_sums(data)
    sums = np.empty(2 * -(-len(data) // CHUNK_BYTES), "<u8")
    native(data.ctypes.data, len(data), _keys().ctypes.data, sums.ctypes.data)
    return sums.tobytes()


def plain_sums(data: Bytes) -> bytes:
    """The same in NumPy."""
    return b"".join(_sums(data[begin : begin + CHUNK_BYTES]) for begin in range(0, len(data), CHUNK_BYTES))


def _sums(chunk: Bytes) -> bytes:
    """Zeros at the end fill up half a pair of words."""
    words = np.frombuffer(chunk.tobytes() + bytes(-len(chunk) % 8), "<u4")
    keyed = (words + _keys()[shift : shift + len(words)] for shift in (0, SHIFT))
    sums = [(both[0::2].astype("<u8") * both[1::2]).sum(dtype="<u8") for both in keyed]
    return np.array(sums, "<u8").tobytes()
