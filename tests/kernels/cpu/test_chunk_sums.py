"""Sums of chunks tell any two of them apart; compiled and in NumPy they are the same."""

import os

import numpy as np
import pytest

from octavo.kernels.cpu import chunk_sums as sums
from octavo.kernels.cpu.chunk_sums import CHUNK_BYTES, Bytes, chunk_sums, plain_sums

KNOWN = "8ae03be7957f5e21f21c083bc0f075df5e5eb43aee0bac3c3ac600f307b231fa"
SIZES = (1, 4, 7, 8, 9, 63, 64, 65, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 4097)


def drawn(size: int) -> Bytes:
    return np.frombuffer(os.urandom(size), np.uint8).copy()


def in_words(data: Bytes) -> bytes:
    """By the formula, in Python's own numbers."""
    made = b""
    for begin in range(0, len(data), CHUNK_BYTES):
        chunk = data[begin : begin + CHUNK_BYTES].tobytes()
        words = np.frombuffer(chunk + bytes(-len(chunk) % 8), "<u4").tolist()
        for shift in (0, sums.SHIFT):
            keys = sums._keys()[shift:].tolist()
            keyed = [(word + key) % 2**32 for word, key in zip(words, keys, strict=False)]
            total = sum(a * b for a, b in zip(keyed[0::2], keyed[1::2], strict=True))
            made += (total % 2**64).to_bytes(8, "little")
    return made


@pytest.mark.parametrize("size", SIZES)
def test_the_compiled_function_and_numpys_are_the_formula(size: int) -> None:
    data = drawn(size)
    assert chunk_sums(data) == plain_sums(data) == in_words(data)
    beside = drawn(size + 3)[3:]  # at an odd address, as tensors of bytes may begin
    assert chunk_sums(beside) == plain_sums(beside)


def test_extreme_words_do_not_overflow_otherwise() -> None:
    for word in (b"\xff" * 4, b"\x00" * 4, b"\x00\x00\x00\x80"):
        data = np.frombuffer(word * 5000, np.uint8)
        assert chunk_sums(data) == plain_sums(data) == in_words(data)


def test_a_flipped_bit_and_swapped_words_change_the_sums() -> None:
    data = drawn(CHUNK_BYTES)
    before = chunk_sums(data)
    seen = {before}
    for bit in range(0, 8 * CHUNK_BYTES, 1021):
        changed = data.copy()
        changed[bit // 8] ^= 1 << bit % 8
        seen.add(chunk_sums(changed))
    words = data.view("<u4").reshape(-1, 2)[:, ::-1].copy()  # of each pair
    seen.add(chunk_sums(words.reshape(-1).view(np.uint8)))
    assert len(seen) == 2 + len(range(0, 8 * CHUNK_BYTES, 1021))


def test_keys_stay_what_they_are() -> None:
    """Groups of two releases of one model must agree."""
    assert chunk_sums(np.arange(256, dtype=np.uint8).repeat(200)).hex() == KNOWN
