"""Binds sampled rows to the ids that their grammars allow."""

from collections.abc import Sequence

import numpy as np
import torch

from octavo.worker.messages.step import Masks

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_LIMITS = np.where(_BITS == 1, np.inf, -np.inf).astype(np.float32)  # [octet, bit]: the most that a logit may be


def bind(logits: torch.Tensor, rows: Sequence[int], masks: Masks, first: int) -> None:
    """-inf, in place, for what the masks of `rows` forbid. logits: [sampled rows, columns], float32, of ids from
    `first` on; the masks have a row of bits for each of `rows`, and columns beyond their end are forbidden."""
    octets = np.frombuffer(masks.bits, dtype=np.uint8).reshape(len(rows), -1)
    begin, end = first // 8, -(-(first + logits.shape[1]) // 8)
    values = logits.numpy()
    # A minimum takes as long whatever the masks look like, and row by row its operands stay in the cache. `fmin` also
    # forbids a NaN; one that is allowed turns to +inf, which ends its request as well.
    for row, allowed in zip(rows, octets[:, begin:end], strict=True):
        limits = _LIMITS.take(allowed, axis=0).reshape(-1)[first % 8 :]
        width = min(limits.size, values.shape[1])
        np.fmin(values[row, :width], limits[:width], out=values[row, :width])
        values[row, width:] = -np.inf
