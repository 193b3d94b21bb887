"""Where a step's rows find their keys and values.

One layer's pool is [2, kv_heads, blocks + 1, block_size, dim]: keys, then values. Heads come before blocks, so that
gathering a row's blocks gives a contiguous [kv_heads, length, dim]. The last block is never written: it pads tables.

Letters: t tokens of the step, r decode rows, h heads, k kv heads, g = h / k, d head dim, n blocks of a row.
"""

from dataclasses import dataclass, replace

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

    table: [n] block indices; mask: [count, n * block_size], 0 or -inf; None when start is 0 and
    there is no window, plain causal then.
    """

    begin: int
    count: int
    start: int
    table: torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Paged:
    """A step's rows. write_index: [t] place of each new token in a pool seen as [2 * k, blocks * block_size, d].

    window: of how many tokens, itself the last, each sees the keys; 0: of all before it. The masks say the same.
    """

    write_index: torch.Tensor
    decode: DecodeRows | None
    prefills: tuple[PrefillRow, ...]
    window: int = 0


def windowed(paged: Paged, window: int, pool: torch.Tensor) -> Paged:
    """The same rows seen through a window; `paged` itself when no token has that many before it."""
    longest = max((row.start + row.count for row in paged.prefills), default=0)
    if paged.decode is not None:
        longest = max(longest, int(paged.decode.lengths.max()))
    if longest <= window:
        return paged
    decode = None if paged.decode is None else _windowed_decode(paged.decode, window, pool)
    return Paged(paged.write_index, decode, tuple(_windowed_row(row, window, pool) for row in paged.prefills), window)


def _windowed_decode(rows: DecodeRows, window: int, pool: torch.Tensor) -> DecodeRows:
    places, ends = torch.arange(rows.tables.shape[1] * pool.shape[3]), rows.lengths[:, None]
    mask = additive_mask((places < ends) & (places >= ends - window), pool.dtype)
    return replace(rows, mask=mask[None, :, None, :])


def _windowed_row(row: PrefillRow, window: int, pool: torch.Tensor) -> PrefillRow:
    places = torch.arange(row.table.shape[0] * pool.shape[3])
    queries = torch.arange(row.start, row.start + row.count)[:, None]
    return replace(row, mask=additive_mask((places <= queries) & (places > queries - window), pool.dtype))


def additive_mask(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where `allowed`, else -inf."""
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, float("-inf"))
