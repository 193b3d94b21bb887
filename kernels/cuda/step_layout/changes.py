"""What changed in the requests' state since the step before, as one buffer of int32 words that one launch applies.

    [segments, admits, 0 ...]  8 words
    segments, 4 words each     slot * 4 + kind, first, count, source    kind 0: tokens, 1: table, 2: padding of a table
    admits, 8 words each       slot, top_k, temperature, top_p, min_p, seed (two words), 0; floats by their bits
    data                       token ids and blocks; source: where a segment's words begin in the buffer, or the padding

Segments of at most 512 words spread long prompts over the device. They never write one word twice: a new request's
table is padded only where no blocks follow, so the device needs no order among them.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEADER_WORDS, SEGMENT_WORDS, ADMIT_WORDS = 8, 4, 8
LONGEST_SEGMENT = 512
TOKENS, TABLE, PADDING = 0, 1, 2

Words = npt.NDArray[np.int32]
Ranges = list[tuple[int, int]]

_ADMIT = np.dtype(
    [(name, "<i4") for name in ("slot", "top_k")]
    + [(name, "<f4") for name in ("temperature", "top_p", "min_p")]
    + [("seed", "<u4", 2), ("free", "<i4")]
)


class SlotInit(NamedTuple):
    """A request takes `slot`. tokens: the ids known now; temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off.

    seed: its low 64 bits count.
    """

    slot: int
    tokens: Sequence[int]
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


def pack_changes(
    admits: Sequence[SlotInit], appends: Iterable[tuple[int, int, Sequence[int]]], width: int, pad: int
) -> Words:
    """Admits come first. appends: (slot, first, blocks) puts blocks into the table of slot from entry `first`.

    width: entries of a table; pad: the block that fills a new request's. Raises ValueError when a slot is admitted
    twice, or its appends overlap or leave the table.
    """
    segments, data = array("i"), array("i")
    filled: dict[int, Ranges] = defaultdict(list)
    for admit in admits:
        _copy(segments, data, admit.slot * 4 + TOKENS, 0, admit.tokens)
    for slot, first, blocks in appends:
        _copy(segments, data, slot * 4 + TABLE, first, blocks)
        filled[slot].append((first, first + len(blocks)))
    copies = len(segments) // SEGMENT_WORDS
    gaps = {slot: list(_gaps(slot, sorted(ranges), width)) for slot, ranges in filled.items()}
    for admit in admits:
        for first, end in gaps.get(admit.slot, [(0, width)]):
            for begin in range(first, end, LONGEST_SEGMENT):
                segments.extend((admit.slot * 4 + PADDING, begin, min(LONGEST_SEGMENT, end - begin), pad))
    return _assembled(segments, copies, admits, data)


def _copy(segments: "array[int]", data: "array[int]", target: int, first: int, words: Sequence[int]) -> None:
    for begin in range(0, len(words), LONGEST_SEGMENT):
        segments.extend((target, first + begin, min(LONGEST_SEGMENT, len(words) - begin), len(data) + begin))
    data.extend(words)


def _gaps(slot: int, filled: Ranges, width: int) -> Iterator[tuple[int, int]]:
    at = 0
    for first, end in filled:
        if first < at or end > width:
            raise ValueError(f"slot {slot}: blocks for entries {first}..{end - 1}, where {at}..{width - 1} are free")
        if first > at:
            yield at, first
        at = end
    if at < width:
        yield at, width


def _assembled(segments: "array[int]", copies: int, admits: Sequence[SlotInit], data: "array[int]") -> Words:
    if len({admit.slot for admit in admits}) < len(admits):
        raise ValueError(f"slots {sorted(admit.slot for admit in admits)}: one is admitted twice")
    admits_at = HEADER_WORDS + len(segments)
    data_at = admits_at + ADMIT_WORDS * len(admits)
    words = np.zeros(data_at + len(data), dtype=np.int32)
    words[:2] = len(segments) // SEGMENT_WORDS, len(admits)
    words[HEADER_WORDS:admits_at] = segments
    words[HEADER_WORDS:admits_at].reshape(-1, SEGMENT_WORDS)[:copies, 3] += data_at
    table = words[admits_at:data_at].view(_ADMIT)
    for entry, admit in enumerate(admits):
        seed = admit.seed & ((1 << 64) - 1)
        sampling = (admit.slot, admit.top_k, admit.temperature, admit.top_p, admit.min_p)
        table[entry] = (*sampling, (seed & 0xFFFFFFFF, seed >> 32), 0)
    words[data_at:] = data
    return words
