"""The prefix hash: what a router and a worker must agree on, for ever."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.shared.hashing import block_hashes


def pack(ids: list[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


IDS = st.lists(st.integers(0, 2**32 - 1), max_size=80)


@given(IDS, IDS)
def test_equal_prefixes_have_equal_hashes(head: list[int], tail: list[int]) -> None:
    whole = block_hashes(pack(head + tail))
    assert whole[: len(head) // 16] == block_hashes(pack(head))


@given(st.lists(st.integers(0, 5), min_size=32, max_size=32), st.integers(0, 31))
def test_another_token_changes_its_block_and_every_later_one(ids: list[int], at: int) -> None:
    other = ids.copy()
    other[at] += 1
    same = [a == b for a, b in zip(block_hashes(pack(ids)), block_hashes(pack(other)), strict=True)]
    assert same == [block < at // 16 for block in range(2)]


def test_a_salt_separates_equal_prompts() -> None:
    prompt = pack(list(range(16)))
    assert len({block_hashes(prompt, salt)[0] for salt in (b"", b"x", b"y", bytes(16))}) == 4


def test_the_hash_never_changes() -> None:
    assert block_hashes(pack(list(range(16))))[0].hex() == GOLDEN


def test_ids_that_are_no_uint32_are_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        block_hashes(b"12345")


GOLDEN = "f87edb4979038a9c0c3f3adcf6c4ab2f"
