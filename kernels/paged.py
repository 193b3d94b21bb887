"""Where a step's rows find their keys and values.

One layer's pool is [2, kv_heads, blocks + 1, block_size, dim]: keys, then values. Heads come before blocks, so that
gathering a row's blocks gives a contiguous [kv_heads, length, dim]. The last block is never written: it pads tables.

Letters: t tokens of the step, r decode rows, h heads, k kv heads, g = h / k, d head dim, n blocks of a row.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """Rows with one new token each; they are the first tokens of the step.

    tables: [r, n] block indices, padded; lengths: [r] tokens to attend to, the new one included.
    mask: [1, r, 1, n * block_size], 0 or -inf; None when no row is shorter than the widest table.
    """

    tables: torch.Tensor
    lengths: torch.Tensor
    mask: torch.Tensor | None

    @property
    def count(self) -> int:
        return self.tables.shape[0]


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of several new tokens: tokens begin .. begin+count-1 of the step, positions start .. start+count-1.

    table: [n] block indices; mask: [count, n * block_size], 0 or -inf; None when start is 0, plain causal then.
    """

    begin: int
    count: int
    start: int
    table: torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Paged:
    """A step's rows. write_index: [t] place of each new token in a pool seen as [2 * k, blocks * block_size, d]."""

    write_index: torch.Tensor
    decode: DecodeRows | None
    prefills: tuple[PrefillRow, ...]
