"""Causal attention of the rows that have several new tokens, over all their keys in the paged pool.

Once a step, rows are cut into tiles on the device, the same for all layers; see prefill_tensor.cuh for a tile, and
prefill_exact.cuh for float32. A row's bits are its own: they depend neither on its neighbours nor on how a prompt was
cut into chunks. The exception are the 16-bit dtypes without a window in a step with too few tiles to keep the device
busy: keys before the 2,048th or 2,080th and later ones are then read by different tiles, as many as that takes, and
their results added up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32, wants_like
from octavo.kernels.cuda.library import FLOAT, INT, POINTER, function

BLOCK = 16
HEAD_DIMS = (64, 96, 128)
MOST_GROUP = 64  # heads of a kv head; a tile of float32 has 64 rows


@dataclass(frozen=True, slots=True)
class PrefillTiles:
    """The tiles of one step, for layers of one shape; a buffer of fixed size whose contents change.

    tiles: [bound + 1, 12] int32: their number and the launch's own counter, then each (struct Tile of
    prefill_fetch.cuh). queries: of a full tile, each with the `group` heads of one kv head. enough: tiles that keep the
    device busy. sums [parts, k, rows, d], bounds [parts, k, rows, 2] float32, arrivals [parts, k, rows / 64] int32: of
    tiles with a part of their keys each. window: keys that a query sees, its own the last; 0: all before it.
    together: keys that the kernel reads at a time.
    """

    tiles: torch.Tensor
    queries: int
    group: int
    enough: int
    sums: torch.Tensor
    bounds: torch.Tensor
    arrivals: torch.Tensor
    window: int = 0
    together: int = 128


def new_prefill_tiles(tokens: int, rows: int, heads: int, pool: torch.Tensor, window: int = 0) -> PrefillTiles:
    """For steps of at most `tokens` and `rows`. Raises ValueError for shapes there is no kernel for."""
    _, kv_heads, _, block_size, head_dim = pool.shape
    group = heads // kv_heads
    if heads % kv_heads or not 1 <= group <= MOST_GROUP:
        raise ValueError(f"heads: {heads} over {kv_heads} kv heads; each must serve 1 to {MOST_GROUP} of them")
    if block_size != BLOCK or head_dim not in HEAD_DIMS:
        raise ValueError(f"pool: blocks of {block_size} by {head_dim}; there are kernels for {BLOCK} by {HEAD_DIMS}")
    dtype = dtype_code("pool", pool)
    height = _tile_rows(dtype, head_dim)
    queries = height // group
    enough = 0 if dtype == 0 else max(1, _processors(pool.device) // kv_heads)
    bound = tokens // queries + min(rows, tokens) + 2 * enough  # each row's last tile may be partly filled
    parts = 0 if window else 3 * enough
    return PrefillTiles(
        torch.zeros((bound + 1, 12), dtype=torch.int32, device=pool.device), queries, group, enough,
        torch.empty((parts, kv_heads, height, head_dim), dtype=torch.float32, device=pool.device),
        torch.empty((parts, kv_heads, height, 2), dtype=torch.float32, device=pool.device),
        torch.zeros((parts, kv_heads, height // 64), dtype=torch.int32, device=pool.device), window,
        160 if head_dim == 128 and dtype and not window else 128,
    )  # fmt: skip


def prefill_plan(
    tiles: PrefillTiles,
    header: torch.Tensor,
    row_slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    begins: torch.Tensor,
) -> None:
    """Cut rows header[1] .. header[0] - 1 of a step into tiles, heaviest first. [R] int32 each; header: [16]."""
    wants_int32("header", header, 16)
    rows = {"row_slots": row_slots, "starts": starts, "counts": counts, "begins": begins}
    for name, tensor in rows.items():
        wants_int32(name, tensor, row_slots.shape[0])
    pointers = (tensor.data_ptr() for tensor in (header, *rows.values(), tiles.tiles))
    _plan()(*pointers, tiles.queries, tiles.tiles.shape[0] - 1, tiles.enough, tiles.window, tiles.together)


def prefill_attention(
    q: torch.Tensor, pool: torch.Tensor, tables: torch.Tensor, tiles: PrefillTiles, out: torch.Tensor
) -> None:
    """Write the attention of the tokens that `tiles` has, and no others.

    q: [t, h, d], heads contiguous; pool: [2, k, blocks, 16, d]; tables: [slots, width] int32; out: [t, h * d].
    """
    tokens, heads, head_dim = q.shape
    _, kv_heads, blocks, _, _ = pool.shape
    wants_like("pool", pool, q, 2, kv_heads, blocks, BLOCK, head_dim)
    wants_like("out", out, q, tokens, heads * head_dim)
    wants_int32("tables", tables, *tables.shape)
    if heads != tiles.group * kv_heads:
        raise ValueError(f"q: {heads} heads over {kv_heads} kv heads; the tiles are of {tiles.group} for each")
    if q.stride()[1:] != (head_dim, 1) or q.stride(0) * q.element_size() % 16 or q.data_ptr() % 16:
        raise ValueError(f"q: strides {q.stride()} at {q.data_ptr():#x}; rows must begin at multiples of 16 bytes")
    _attention()(
        *(dtype_code("q", q), head_dim, q.data_ptr(), tokens, q.stride(0), heads),
        *(pool.data_ptr(), kv_heads, blocks, tables.data_ptr(), tables.shape[1]),
        *(tiles.tiles.data_ptr(), tiles.tiles.shape[0] - 1, out.data_ptr()),
        *(part.data_ptr() for part in (tiles.sums, tiles.bounds, tiles.arrivals)),
        *(head_dim**-0.5, tiles.window),
    )


def _tile_rows(dtype: int, head_dim: int) -> int:
    """A query and a head of the group are a row: kRows of the shapes in csrc/attention/prefill.cu."""
    if dtype == 0:
        return 64
    return 192 if head_dim == 64 else 128


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _plan() -> Callable[..., None]:
    return function("prefill", "octavo_prefill_plan", *[POINTER] * 6, *[INT] * 5)


@cache
def _attention() -> Callable[..., None]:
    before = (INT, INT, POINTER, INT, INT, INT, POINTER, INT, INT, POINTER, INT)
    return function("prefill", "octavo_prefill_attention", *before, POINTER, INT, *[POINTER] * 4, FLOAT, INT)
