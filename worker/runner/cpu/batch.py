"""From a step's rows to the tensors that a pass needs. Made once a step, used by every layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.kernels.paged import DecodeRows, Paged, PrefillRow, additive_mask
from octavo.worker.messages.step import Forward, Scored
from octavo.worker.models.attention import Batch


@dataclass(frozen=True, slots=True)
class SlotState:
    """tokens: [slots, context] ids; tables: [slots, blocks] block indices; dtype: of the model, for its masks."""

    tokens: torch.Tensor
    tables: torch.Tensor
    block_size: int
    dtype: torch.dtype


def make_batch(forward: Forward, state: SlotState, scored: Sequence[Scored] = ()) -> Batch:
    """The tensors of `forward`, whose changes were applied to `state` already. scored: further positions of rows whose
    hidden states are kept, after the last ones of all rows."""
    tables, block_size = state.tables, state.block_size
    slots = torch.tensor(forward.slots)
    starts = torch.tensor(forward.starts)
    decoding = next((row for row, count in enumerate(forward.counts) if count > 1), len(forward.counts))
    positions, token_slots, kept = starts, slots, None
    if decoding < len(forward.counts) or scored:
        counts = torch.tensor(forward.counts)
        ends = counts.cumsum(0)
        within = torch.arange(forward.tokens) - (ends - counts).repeat_interleave(counts)
        positions = starts.repeat_interleave(counts) + within
        token_slots = slots.repeat_interleave(counts)
        kept = ends - 1
        if scored:
            begins = (ends - counts).tolist()
            kept = torch.cat((kept, *(torch.arange(count) + begins[row] + first for row, first, count in scored)))
    blocks = tables[token_slots, positions // block_size]
    paged = Paged(
        write_index=blocks * block_size + positions % block_size,
        decode=_decode_rows(slots[:decoding], starts[:decoding], state) if decoding else None,
        prefills=_prefill_rows(forward, decoding, state),
    )
    return Batch(state.tokens[token_slots, positions], positions, paged, kept)


def _decode_rows(slots: torch.Tensor, starts: torch.Tensor, state: SlotState) -> DecodeRows:
    lengths = starts + 1
    width = -(-int(lengths.max()) // state.block_size)
    mask = additive_mask(torch.arange(width * state.block_size) < lengths[:, None], state.dtype)
    return DecodeRows(state.tables[slots, :width], lengths, mask[None, :, None, :])


def _prefill_rows(forward: Forward, first: int, state: SlotState) -> tuple[PrefillRow, ...]:
    rows = []
    begin = first
    parts = (part[first:] for part in (forward.slots, forward.starts, forward.counts))
    for slot, start, count in zip(*parts, strict=True):
        width = -(-(start + count) // state.block_size)
        mask = None
        if start:
            queries = torch.arange(start, start + count)
            mask = additive_mask(torch.arange(width * state.block_size) <= queries[:, None], state.dtype)
        rows.append(PrefillRow(begin, count, start, state.tables[slot, :width], mask))
        begin += count
    return tuple(rows)
