"""What the host packs for the device means what it says: applied in any order, it is the changes in theirs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kernels.cuda.step_layout import changes as layout
from octavo.kernels.cuda.step_layout.changes import SlotInit, Words, pack_changes
from octavo.kernels.cuda.step_layout.steps import HEADER_WORDS, Rows, pack_step, packed_words

SLOTS, CONTEXT, WIDTH, PAD = 4, 1500, 1100, 99


def play(words: Words, tokens: Words, tables: Words) -> dict[int, tuple[float, ...]]:
    """Apply as the device does, last segment first; each word is written once. Returns the parameters by slot."""
    count, admits = int(words[0]), int(words[1])
    begin = layout.HEADER_WORDS
    segments = words[begin : begin + 4 * count].reshape(-1, 4)
    touched: set[tuple[int, int, int]] = set()
    for target, first, length, source in segments[::-1].tolist():
        slot, kind = target >> 2, target & 3
        assert 0 < length <= layout.LONGEST_SEGMENT
        into = tokens if kind == layout.TOKENS else tables
        into[slot, first : first + length] = source if kind == layout.PADDING else words[source : source + length]
        written = {(kind == layout.TOKENS, slot, at) for at in range(first, first + length)}
        assert not written & touched
        touched |= written
    begin += 4 * count
    entries = words[begin : begin + 8 * admits].reshape(-1, 8)
    floats, unsigned = entries.view(np.float32), entries.view(np.uint32)
    return {
        int(entry[0]): (*real[2:5].tolist(), int(entry[1]), int(bits[5]) | int(bits[6]) << 32)
        for entry, real, bits in zip(entries, floats, unsigned, strict=True)
    }


@st.composite
def blocks_of(draw: st.DrawFn, slot: int) -> list[tuple[int, int, list[int]]]:
    """Appends that do not overlap, in any order."""
    appends, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 600)), max_size=4)):
        first = at + gap
        at = first + length
        if at <= WIDTH:
            appends.append((slot, first, list(range(first * 7, first * 7 + length))))
    return draw(st.permutations(appends))


@given(st.data())
def test_packed_changes_are_the_changes_in_order(data: st.DataObject) -> None:
    admitted = data.draw(st.sets(st.integers(0, SLOTS - 1)))
    lengths = {slot: data.draw(st.integers(0, CONTEXT)) for slot in admitted}
    admits = [
        SlotInit(slot, range(slot, slot + length), 0.5 + slot, slot, 0.25, 0.125) for slot, length in lengths.items()
    ]
    appends = [append for slot in range(SLOTS) for append in data.draw(blocks_of(slot))]
    tokens, tables = (np.full((SLOTS, size), -1, np.int32) for size in (CONTEXT, WIDTH))
    wanted_tokens, wanted_tables = tokens.copy(), tables.copy()
    for admit in admits:
        wanted_tokens[admit.slot, : len(admit.tokens)] = admit.tokens
        wanted_tables[admit.slot] = PAD
    for slot, first, blocks in appends:
        wanted_tables[slot, first : first + len(blocks)] = blocks
    sampling = play(pack_changes(admits, appends, WIDTH, PAD), tokens, tables)
    assert (tokens == wanted_tokens).all() and (tables == wanted_tables).all()
    assert sampling == {admit.slot: (0.5 + admit.slot, 0.25, 0.125, admit.slot, 0) for admit in admits}


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1, 2**70 + 5, -(2**63)])
def test_a_seed_keeps_its_low_64_bits(seed: int) -> None:
    packed = pack_changes([SlotInit(3, [1], seed=seed)], (), WIDTH, PAD)
    sampling = play(packed, np.zeros((SLOTS, 1), np.int32), np.zeros((SLOTS, WIDTH), np.int32))
    assert sampling[3] == (0.0, 1.0, 0.0, 0, seed % 2**64)


def test_changes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="admitted twice"):
        pack_changes([SlotInit(1, [5]), SlotInit(1, [6])], (), WIDTH, PAD)
    with pytest.raises(ValueError, match="slot 2: blocks for entries 1"):
        pack_changes((), [(2, 0, [1, 2]), (2, 1, [3])], WIDTH, PAD)
    with pytest.raises(ValueError, match="slot 0"):
        pack_changes((), [(0, WIDTH - 1, [1, 2])], WIDTH, PAD)


def test_a_step_lies_at_the_offsets_of_its_bucket() -> None:
    into = np.full(packed_words(5, 4), -1, np.int32)
    pack_step(Rows([7, 8, 9], [3, 0, 5], [1, 2, 30], [0, 2], [11, 12]), 5, 4, into)
    assert into[:HEADER_WORDS].tolist() == [3, 1, 33, 2] + [0] * 12
    rows, samples = into[HEADER_WORDS : HEADER_WORDS + 15].reshape(3, 5), into[HEADER_WORDS + 15 :].reshape(2, 4)
    assert rows[:, :3].tolist() == [[7, 8, 9], [3, 0, 5], [1, 2, 30]]
    assert samples[:, :2].tolist() == [[0, 2], [11, 12]]


def test_a_step_that_does_not_fit_its_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="2 rows and 0 samples do not fit a bucket of 1 and 1"):
        pack_step(Rows([0, 1], [0, 0], [1, 1], [], []), 1, 1, np.zeros(packed_words(1, 1), np.int32))


def test_rows_of_one_token_count_only_while_they_lead() -> None:
    into = np.zeros(packed_words(4, 1), np.int32)
    for counts, leading in (([1, 1, 1, 1], 4), ([1, 1, 2, 1], 2), ([5], 0), ([], 0)):
        pack_step(Rows(range(len(counts)), counts, counts, [], []), 4, 1, into)
        assert into[1] == leading
