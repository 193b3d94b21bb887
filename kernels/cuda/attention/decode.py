"""Attention of the rows that have one new token each: divided on the device once a step, the same for all layers.

bfloat16 and float16 run on the tensor cores (decode.cu) as decode_plan.cu divides the work; a row's split, and so
its last bits, depend on its neighbours. float32 (decode_f32.cu) needs no plan, and a row's bits are its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from octavo.kernels.cuda.library import DTYPES, INT, LONG, POINTER, function

TILE_QUERIES = 64  # kTileQueries of decode.cuh
CLUSTER = 8  # kCluster
ITEM, ITEMS_AT_ONCE = 8, 32  # int32 of an Item; how many are loaded at once
MOST_ROWS, MOST_GROUP = 1024, 8
HEAD_DIMS = (64, 96, 128)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Buffers of fixed size that a step's division is written into, and its partial results; see decode.cuh.

    arrivals must be zero before the first launch; every launch leaves it so. Costs: block_cost of 16 tokens of one row
    and kv head, quad_cost of 64 tokens of a tile of rows that share them, unit_cost of either beside its tokens. least:
    blocks below which a CTA is not worth starting. sharing: read shared prefixes once. window: tokens that a row sees,
    itself the last; 0: all. clustered_ctas: of launches for
    few rows, whose partial results meet within clusters.
    """

    rows: int
    kv_heads: int
    group: int
    head_dim: int
    dtype: torch.dtype
    ctas: int
    clustered_ctas: int
    first: torch.Tensor
    items: torch.Tensor
    members: torch.Tensor
    parts: torch.Tensor
    arrivals: torch.Tensor
    partials: torch.Tensor
    bounds: torch.Tensor
    block_cost: int = 8
    quad_cost: int = 64
    unit_cost: int = 32
    least: int = 8
    sharing: bool = True
    window: int = 0

    @property
    def tile_parts(self) -> int:
        """Where in partials the results of tiles begin."""
        return (self.rows * self.kv_heads + self.ctas) * self.group


def new_decode_plan(
    rows: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device, window: int = 0
) -> DecodePlan:
    """For steps of at most `rows` decode rows, of any length. Raises ValueError for shapes there is no kernel for."""
    group = heads // kv_heads
    if heads % kv_heads or not 1 <= group <= MOST_GROUP or kv_heads > 255:
        raise ValueError(f"heads: {heads} over {kv_heads} kv heads; each must serve 1 to {MOST_GROUP} of them")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim: {head_dim} is none of {HEAD_DIMS}")
    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"rows: {rows} is not within 1..{MOST_ROWS}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: there is no kernel for {dtype}")
    planned = dtype is not torch.float32
    sms = torch.cuda.get_device_properties(device).multi_processor_count if planned else 0
    ctas = _ctas_per_sm(head_dim, group) * sms
    units, tile_units = rows * kv_heads, rows // 4 * kv_heads  # a group has four rows or more
    parts = (units + ctas) * group + (tile_units + ctas) * TILE_QUERIES if planned else 0

    def integers(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    return DecodePlan(
        rows=rows,
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        dtype=dtype,
        ctas=ctas,
        clustered_ctas=2 * sms // CLUSTER * CLUSTER,
        first=integers(ctas, ITEM),
        items=integers(tile_units + units + ctas + ITEMS_AT_ONCE, ITEM),
        members=integers(rows),
        parts=integers(units, 4),
        arrivals=integers(units),
        partials=torch.empty(parts, head_dim, dtype=torch.float32, device=device),
        bounds=torch.empty(parts, 2, dtype=torch.float32, device=device),
        window=window,
    )


def decode_plan(
    plan: DecodePlan, header: torch.Tensor, row_slots: torch.Tensor, lengths: torch.Tensor, tables: torch.Tensor
) -> None:
    """Divide a step: the first header[1] rows. row_slots, lengths: [R]; tables: [slots + 1, width]; all int32."""
    _check_rows(plan, header, row_slots, lengths, tables)
    if plan.ctas:
        _plan()(
            *(tensor.data_ptr() for tensor in (header, row_slots, lengths, tables)),
            *_buffers(plan),
            *(row_slots.shape[0], plan.kv_heads, plan.group, tables.shape[1], _grid(plan, row_slots)),
            *(plan.block_cost, plan.quad_cost, plan.unit_cost, plan.least, int(plan.sharing)),
            *(int(_clustered(plan, row_slots)), plan.window),
        )


def decode_attention(
    q: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    row_slots: torch.Tensor,
    lengths: torch.Tensor,
    header: torch.Tensor,
    plan: DecodePlan,
    out: torch.Tensor,
) -> None:
    """out[i] = attention of q[i] over the first lengths[i] tokens of row i (or the last of these that the plan's window
    shows), for the first header[1] rows.

    q: [t, h, d], heads contiguous; pool: [2, k, blocks, 16, d]; out: [t, h * d]. plan: of this step.

    Between decode_plan and this, kernels may write q and each row's last block, but neither tables, lengths nor older
    blocks: they are read before the kernel before this one has ended (programmatic dependent launch).
    """
    _check_rows(plan, header, row_slots, lengths, tables)
    kv_heads, group, head_dim = plan.kv_heads, plan.group, plan.head_dim
    if q.dtype is not plan.dtype or q.shape[1:] != (kv_heads * group, head_dim) or q.stride()[1:] != (head_dim, 1):
        raise ValueError(f"q: {tuple(q.shape)} {q.dtype} {q.stride()} does not fit the plan")
    if q.stride(0) % 8 or q.data_ptr() % 16:
        raise ValueError("q: rows must begin at multiples of 16 bytes")
    if pool.dtype is not plan.dtype or pool.shape[:2] != (2, kv_heads) or pool.shape[3:] != (16, head_dim):
        raise ValueError(f"pool: {tuple(pool.shape)} {pool.dtype} does not fit the plan")
    if not pool[0, 0].is_contiguous():
        raise ValueError("pool: the blocks of a head must be contiguous")
    if out.dtype is not plan.dtype or out.shape != (q.shape[0], kv_heads * group * head_dim) or not out.is_contiguous():
        raise ValueError(f"out: {tuple(out.shape)} {out.dtype} does not fit q, or is not contiguous")
    pointers = (q.data_ptr(), pool.data_ptr(), out.data_ptr(), tables.data_ptr())
    strides = (pool.stride(0), pool.stride(1), q.stride(0), q.stride(1))
    shape = (tables.shape[1], kv_heads, group, head_dim)
    if not plan.ctas:
        rest = (row_slots.data_ptr(), lengths.data_ptr(), header.data_ptr())
        _attention_f32()(*pointers, *rest, *strides, *shape, plan.window, min(row_slots.shape[0], q.shape[0]))
        return
    buffers = (*_buffers(plan), plan.partials.data_ptr(), plan.bounds.data_ptr(), plan.tile_parts)
    launch = (_grid(plan, row_slots), int(_clustered(plan, row_slots)), plan.window, DTYPES[plan.dtype])
    _attention()(*pointers, *buffers, *strides, *shape, *launch)


def _ctas_per_sm(head_dim: int, group: int) -> int:
    """What shared memory allows."""
    return 3 if head_dim == 64 and group <= 4 else 2


def _clustered(plan: DecodePlan, row_slots: torch.Tensor) -> bool:
    """Whether each (row, kv head) can have two CTAs or more."""
    return 2 * row_slots.shape[0] * plan.kv_heads <= plan.clustered_ctas


def _grid(plan: DecodePlan, row_slots: torch.Tensor) -> int:
    return plan.clustered_ctas if _clustered(plan, row_slots) else plan.ctas


def _buffers(plan: DecodePlan) -> tuple[int, ...]:
    return tuple(t.data_ptr() for t in (plan.first, plan.items, plan.members, plan.parts, plan.arrivals))


def _check_rows(
    plan: DecodePlan, header: torch.Tensor, row_slots: torch.Tensor, lengths: torch.Tensor, tables: torch.Tensor
) -> None:
    named = {"header": header, "row_slots": row_slots, "lengths": lengths, "tables": tables}
    for name, tensor in named.items():
        if tensor.dtype is not torch.int32 or not tensor.is_contiguous():
            raise ValueError(f"{name}: must be contiguous int32, not {tensor.dtype}")
    if row_slots.shape != lengths.shape or row_slots.shape[0] > plan.rows:
        raise ValueError(f"row_slots: {tuple(row_slots.shape)}, lengths {tuple(lengths.shape)}; at most {plan.rows}")


@cache
def _plan() -> Callable[..., None]:
    return function("decode_plan", "octavo_decode_plan", *[POINTER] * 9, *[INT] * 12)


@cache
def _attention() -> Callable[..., None]:
    return function("decode", "octavo_decode", *[POINTER] * 11, *[LONG] * 5, *[INT] * 8)


@cache
def _attention_f32() -> Callable[..., None]:
    return function("decode_f32", "octavo_decode_f32", *[POINTER] * 7, *[LONG] * 4, *[INT] * 6)
