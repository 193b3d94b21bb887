"""Binds sampled rows to the ids that their grammars allow."""

from collections.abc import Sequence

import torch

from octavo.worker.step import Masks

_BITS = torch.arange(8, dtype=torch.uint8)


def bind(logits: torch.Tensor, rows: Sequence[int], masks: Masks, first: int) -> None:
    """-inf, in place, for what the masks of `rows` forbid. logits: [sampled rows, columns], of ids from `first` on; the
    masks have a row of bits for each of `rows`, and columns beyond their end are forbidden."""
    octets = torch.frombuffer(bytearray(masks.bits), dtype=torch.uint8).view(len(rows), -1)
    allowed = ((octets[:, :, None] >> _BITS) & 1).flatten(1)[:, first : first + logits.shape[1]].bool()
    chosen = torch.tensor(rows)
    bound = torch.full((len(rows), logits.shape[1]), float("-inf"), dtype=logits.dtype)
    width = allowed.shape[1]
    bound[:, :width] = logits[chosen, :width].masked_fill(~allowed, float("-inf"))
    logits[chosen] = bound
