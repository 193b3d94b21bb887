"""A step's rows: what the host packs, and the fixed buffers that the device lays them out in.

Packed, int32 words, for a bucket of R rows and S samples (fewer may be valid; the rest is ignored):

    header [16]   0: rows, 1: rows of one token, which come first, 2: tokens, 3: samples
    slots [R]   starts [R]   counts [R]   sampled rows [S]   counters [S]
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from octavo.kernels.cuda.step_layout.changes import Words

HEADER_WORDS = 16


def packed_words(rows: int, samples: int) -> int:
    """Length of the buffer for a bucket."""
    return HEADER_WORDS + 3 * rows + 2 * samples


@dataclass(frozen=True, slots=True)
class Rows:
    """Compute positions start .. start+count-1 of each slot; rows with a count of 1 come first.

    sampled: rows whose last position is sampled; counters: tokens that each of them has sampled before.
    """

    slots: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int]
    sampled: Sequence[int]
    counters: Sequence[int]


def pack_step(step: Rows, rows: int, samples: int, into: Words) -> None:
    """Fill `into` [packed_words(rows, samples)]; entries that are not valid keep what they had."""
    real, drawn = len(step.slots), len(step.sampled)
    if real > rows or drawn > samples:
        raise ValueError(f"{real} rows and {drawn} samples do not fit a bucket of {rows} and {samples}")
    counts = np.asarray(step.counts, dtype=np.int32)
    into[:HEADER_WORDS] = 0
    into[:4] = real, _leading_ones(counts), counts.sum(), drawn
    at = HEADER_WORDS
    for values, size in ((step.slots, rows), (step.starts, rows), (counts, rows)):
        into[at : at + real] = values
        at += size
    for values in (step.sampled, step.counters):
        into[at : at + drawn] = values
        at += samples


def _leading_ones(counts: Words) -> int:
    longer = np.flatnonzero(counts != 1)
    return int(longer[0]) if longer.size else len(counts)


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """int32 throughout; what is beyond the true counts pads: the slot that no request has, length 0, place -1, id 0.

    header: [16]. ids, positions, places (block * 16 + offset): [T]. row_slots, starts, counts, begins (first token),
    lengths (start + count): [R]. sample_tokens (each sampled row's last token), sample_slots, sample_ends (where the
    sampled id is written), counters: [S].
    """

    header: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    row_slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    begins: torch.Tensor
    lengths: torch.Tensor
    sample_tokens: torch.Tensor
    sample_slots: torch.Tensor
    sample_ends: torch.Tensor
    counters: torch.Tensor


def step_buffers(rows: int, samples: int, tokens: int, device: torch.device | str) -> StepBuffers:
    sizes = [HEADER_WORDS, *[tokens] * 3, *[rows] * 5, *[samples] * 4]
    assert len(sizes) == len(fields(StepBuffers))
    return StepBuffers(*(torch.zeros(size, dtype=torch.int32, device=device) for size in sizes))
