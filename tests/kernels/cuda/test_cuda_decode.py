"""Decode attention against the same in float64, on poisoned memory, and its plan against the plan's model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from support.models.decode_division import Costs, Piece, divide

from octavo.kernels.cuda.attention.decode import DecodePlan, decode_attention, decode_plan, new_decode_plan

pytestmark = pytest.mark.gpu

BLOCK, DEVICE = 16, torch.device("cuda")
# Of ||out - exact|| / ||exact|| of a row. Weights and results are rounded to the dtype: 2^-9 and 2^-12 each at most.
TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 6e-4, torch.float32: 2e-6}
HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@dataclass(frozen=True)
class Step:
    """Rows with their pool, where every token that no row has is NaN; `extra` rows of padding and tokens follow."""

    lengths: list[int]
    q: torch.Tensor
    pool: torch.Tensor
    tables: torch.Tensor
    row_slots: torch.Tensor
    device_lengths: torch.Tensor
    header: torch.Tensor

    @property
    def row_tables(self) -> list[list[int]]:
        return [self.tables[slot].tolist() for slot in self.row_slots[: len(self.lengths)].tolist()]


def numbers(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def make_step(
    lengths: list[int],
    heads: int,
    kv_heads: int,
    d: int,
    dtype: torch.dtype,
    families: list[int] | None = None,
    common: int = 0,
    extra: int = 3,
    width: int | None = None,
    window: int = 0,
) -> Step:
    """Rows of one family other than 0 have the same first `common` blocks. What a window hides is NaN but for the block
    that it begins in: there values are finite, as a request's own are, and large."""
    rows, width = len(lengths), width or -(-max(lengths) // BLOCK) + 2
    needed = [-(-length // BLOCK) for length in lengths]
    blocks = sum(needed) + 5
    free = iter(torch.randperm(blocks).tolist())
    has = torch.zeros(blocks + 1, BLOCK, dtype=torch.bool)
    large = torch.zeros_like(has)
    tables = torch.full((rows + extra + 1, width), blocks, dtype=torch.int32)
    slots = torch.randperm(rows + extra)[:rows]
    prefixes: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        family = families[row] if families else 0
        table = list(prefixes.get(family, [])[: needed[row]]) if family else []
        table += [next(free) for _ in range(needed[row] - len(table))]
        if family and family not in prefixes:
            prefixes[family] = table[:common]
        tables[slots[row], : needed[row]] = torch.tensor(table)
        hidden = max(0, length - window) if window else 0
        seen = torch.arange(hidden, length)
        has[torch.tensor(table)[seen // BLOCK], seen % BLOCK] = True
        large[table[hidden // BLOCK], : hidden % BLOCK] = True
    pool = torch.randn(2, kv_heads, blocks + 1, BLOCK, d, device=DEVICE).to(dtype)
    pool.masked_fill_(~has.to(DEVICE)[:, :, None], torch.nan)
    pool.masked_fill_((large & ~has).to(DEVICE)[:, :, None], 1e3)
    qkv = torch.randn(rows + extra, heads + 2 * kv_heads, d, device=DEVICE).to(dtype)
    padding = [rows + extra] * extra
    return Step(
        lengths=lengths,
        q=qkv[:, :heads],
        pool=pool,
        tables=tables.to(DEVICE),
        row_slots=numbers([*slots.tolist(), *padding]),
        device_lengths=numbers(lengths + [0] * extra),
        header=numbers([rows + extra, rows, rows + extra, rows] + [-1] * 12),
    )


def exact(step: Step, window: int = 0) -> torch.Tensor:
    out = []
    group = step.q.shape[1] // step.pool.shape[1]
    for row, length in enumerate(step.lengths):
        table = step.tables[step.row_slots[row]][: -(-length // BLOCK)].long()
        first = max(0, length - window) if window else 0
        keys, values = (part[:, table].flatten(1, 2)[:, first:length].double() for part in step.pool)
        q = step.q[row].double().unflatten(0, (-1, group))  # [k, g, d]
        weights = (q @ keys.transpose(1, 2) * q.shape[2] ** -0.5).softmax(-1)
        out.append((weights @ values).flatten())
    return torch.stack(out)


def new_plan(step: Step, **fields: object) -> DecodePlan:
    """Of garbage, but for what must be zero."""
    heads, kv_heads = step.q.shape[1], step.pool.shape[1]
    plan = new_decode_plan(len(step.row_slots), heads, kv_heads, step.q.shape[2], step.q.dtype, DEVICE)
    for tensor in (plan.first, plan.items, plan.members, plan.parts):
        tensor.random_(-(2**31), 2**31 - 1)
    plan.partials.fill_(torch.nan)
    plan.bounds.fill_(torch.nan)
    return replace(plan, **fields)  # type: ignore[arg-type]


def divided(step: Step, plan: DecodePlan) -> None:
    decode_plan(plan, step.header, step.row_slots, step.device_lengths, step.tables)


def attended(step: Step, plan: DecodePlan) -> torch.Tensor:
    out = torch.full((step.q.shape[0], step.q.shape[1] * step.q.shape[2]), torch.nan, device=DEVICE).to(step.q.dtype)
    decode_attention(step.q, step.pool, step.tables, step.row_slots, step.device_lengths, step.header, plan, out)
    assert out[len(step.lengths) :].isnan().all()
    assert (plan.arrivals == 0).all()
    return out[: len(step.lengths)]


def run(step: Step, **fields: object) -> torch.Tensor:
    plan = new_plan(step, **fields)
    divided(step, plan)
    return attended(step, plan)


def assert_close(out: torch.Tensor, expected: torch.Tensor, d: int) -> None:
    errors = (out.double() - expected).unflatten(1, (-1, d)).norm(dim=2) / expected.unflatten(1, (-1, d)).norm(dim=2)
    assert errors.max() < TOLERANCE[out.dtype], f"{errors.max():.2e} at {errors.argmax()} of {tuple(errors.shape)}"


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("d", [64, 96, 128])
@pytest.mark.parametrize("group", range(1, 9))
def test_rows_of_mixed_lengths(dtype: torch.dtype, d: int, group: int) -> None:
    step = make_step([1, 15, 16, 17, 4097, 640, 33, 257], 3 * group, 3, d, dtype)
    assert_close(run(step), exact(step), d)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 128, 640, 4097])
def test_a_single_row(dtype: torch.dtype, length: int) -> None:
    for d in (64, 128):
        step = make_step([length], 32, 8, d, dtype, extra=0)
        assert_close(run(step), exact(step), d)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("lengths", [[640], [4097], [1, 300], [129, 640, 17, 2000], [100] * 16, [20000, 30]], ids=str)
@pytest.mark.parametrize("least", [1, 8])
def test_few_rows_by_many_ctas(dtype: torch.dtype, lengths: list[int], least: int) -> None:
    for heads, kv_heads, d in ((32, 8, 64), (14, 2, 64), (32, 8, 128), (12, 4, 96), (8, 8, 128), (8, 1, 64)):
        step = make_step(lengths, heads, kv_heads, d, dtype, extra=0)
        assert_close(run(step, least=least), exact(step), d)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("least", [1, 4, 64])
def test_many_rows_however_they_are_cut(dtype: torch.dtype, least: int) -> None:
    lengths = torch.randint(1, 700, (300,)).tolist()
    step = make_step(lengths, 8, 2, 64, dtype)
    assert_close(run(step, least=least), exact(step), 64)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("d", "group"), [(64, 4), (128, 4), (96, 3), (64, 1), (128, 8), (64, 7)])
def test_rows_that_share_prefixes(dtype: torch.dtype, d: int, group: int) -> None:
    rows = 100
    families = torch.randint(0, 4, (rows,)).tolist()
    lengths = (200 + torch.randint(0, 300, (rows,))).tolist()
    step = make_step(lengths, 2 * group, 2, d, dtype, families, common=12)
    expected = exact(step)
    for sharing in (True, False):
        assert_close(run(step, sharing=sharing), expected, d)


def test_a_prefix_shared_by_many_rows_beside_a_few_that_share_less() -> None:
    families = [1] * 70 + [0] * 3
    step = make_step([2176] * 73, 32, 8, 64, torch.bfloat16, families, common=128)
    step.tables[step.row_slots[7], 10:130] = step.tables[step.row_slots[70], 10:130]
    assert_close(run(step), exact(step), 64)


WINDOWS = [1, 15, 16, 17, 100, 257, 640, 5000]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("d", "group"), [(64, 4), (128, 4), (96, 3), (128, 8), (64, 1)])
def test_rows_seen_through_a_window(dtype: torch.dtype, window: int, d: int, group: int) -> None:
    step = make_step([1, 15, 16, 17, 4097, 640, 33, 257], 2 * group, 2, d, dtype, window=window)
    assert_close(run(step, window=window), exact(step, window), d)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("window", [7, 130, 1000])
@pytest.mark.parametrize("lengths", [[640], [4097], [1, 300], [129, 640, 17, 2000], [100] * 16], ids=str)
def test_few_rows_through_a_window_by_many_ctas(dtype: torch.dtype, window: int, lengths: list[int]) -> None:
    for heads, kv_heads, d in ((32, 8, 64), (32, 8, 128), (8, 1, 64)):
        step = make_step(lengths, heads, kv_heads, d, dtype, extra=0, window=window)
        assert_close(run(step, least=1, window=window), exact(step, window), d)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("window", [100, 350, 1000])
def test_only_rows_that_a_window_shows_whole_share_prefixes(dtype: torch.dtype, window: int) -> None:
    rows = 100
    families = torch.randint(0, 4, (rows,)).tolist()
    lengths = (200 + torch.randint(0, 300, (rows,))).tolist()
    step = make_step(lengths, 8, 2, 64, dtype, families, common=12)  # what one row does not see another may
    assert_close(run(step, window=window), exact(step, window), 64)


def planned(plan: DecodePlan, ctas: int) -> list[Piece]:
    """What the CTAs would do."""
    first, items, members = plan.first.tolist(), plan.items.tolist(), plan.members.tolist()
    pieces = []
    for cta in range(ctas):
        item = first[cta]
        while item[3] < item[4]:
            row, unit, _, begin, end, _, part, flags = item
            shared, more, cluster = (bool(flags >> bit & 1) for bit in (24, 25, 26))
            rows = tuple(members[row : row + (flags >> 8 & 0xFFFF)]) if shared else (row,)
            pieces.append(Piece(cta, rows, flags & 0xFF, begin, end, shared, None if part < 0 else part, cluster))
            if not more:
                break
            item = items[unit + cta + 1]
    return pieces


@pytest.mark.parametrize("rows", [1, 3, 8, 31, 54, 64, 200, 1000])
@pytest.mark.parametrize("common", [0, 9, 40])
@pytest.mark.parametrize("least", [1, 16])
@pytest.mark.parametrize("window", [0, 1, 300, 600])
def test_the_plan_is_that_of_its_model(rows: int, common: int, least: int, window: int) -> None:
    lengths = torch.randint(1, 900, (rows,)).tolist()
    families = torch.randint(0, 6, (rows,)).tolist() if common else None
    step = make_step(lengths, 8, 2, 64, torch.bfloat16, families, common, extra=7 if rows < 1000 else 0)
    plan = new_plan(step, least=least, window=window)
    divided(step, plan)
    clusters = 4 * len(step.row_slots) <= plan.clustered_ctas
    ctas = plan.clustered_ctas if clusters else plan.ctas
    costs = Costs(ctas, plan.block_cost, plan.quad_cost, plan.unit_cost, least, clusters)
    assert planned(plan, ctas) == divide(lengths, step.row_tables, 2, 4, costs, window=window)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_graph_replays_with_other_rows(dtype: torch.dtype) -> None:
    one_family = [1] * 60
    steps = [
        make_step([700] * 60, 8, 2, 64, dtype, one_family, 30, 0, 60),
        make_step([5], 8, 2, 64, dtype, None, 0, 59, 60),
        make_step(torch.randint(1, 900, (57,)).tolist(), 8, 2, 64, dtype, None, 0, 3, 60),
        make_step([900, 1], 8, 2, 64, dtype, None, 0, 58, 60),
    ]
    blocks = max(step.pool.shape[2] for step in steps)
    held = replace(
        steps[0],
        q=steps[0].q.clone(),
        pool=steps[0].pool.new_empty(2, 2, blocks, BLOCK, 64),
        tables=steps[0].tables.clone(),
        row_slots=steps[0].row_slots.clone(),
        device_lengths=steps[0].device_lengths.clone(),
        header=steps[0].header.clone(),
    )
    plan = new_plan(held)
    out = torch.empty(60, 8 * 64, dtype=dtype, device=DEVICE)

    def load(step: Step) -> None:
        held.q.copy_(step.q)
        held.pool[:, :, : step.pool.shape[2]] = step.pool
        for name in ("tables", "row_slots", "device_lengths", "header"):
            getattr(held, name).copy_(getattr(step, name))

    def both() -> None:
        divided(held, plan)
        for _ in range(3):
            rows = (held.row_slots, held.device_lengths, held.header)
            decode_attention(held.q, held.pool, held.tables, *rows, plan, out)

    load(steps[0])
    both()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        both()
    for step in (*steps, *reversed(steps)):
        load(step)
        out.fill_(torch.nan)
        graph.replay()
        assert_close(out[: len(step.lengths)], exact(step), 64)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_same_step_gives_the_same_bits(dtype: torch.dtype) -> None:
    families = [1] * 40 + [0] * 60
    step = make_step(torch.randint(200, 2000, (100,)).tolist(), 8, 2, 128, dtype, families, common=12)
    plan = new_plan(step)
    divided(step, plan)
    first = attended(step, plan)
    assert all(torch.equal(first, attended(step, plan)) for _ in range(10))


def test_a_float32_row_does_not_depend_on_its_neighbours() -> None:
    step = make_step([700, 1, 4097, 33, 640], 8, 2, 64, torch.float32)
    together = run(step)
    for row, length in enumerate(step.lengths):
        alone = replace(
            step,
            lengths=[length],
            q=step.q[row : row + 1],
            row_slots=step.row_slots[row : row + 1].clone(),
            device_lengths=step.device_lengths[row : row + 1].clone(),
            header=numbers([1, 1, 1, 1] + [0] * 12),
        )
        assert torch.equal(run(alone)[0], together[row])


def test_no_decode_rows_leave_the_output_alone() -> None:
    step = make_step([40], 8, 2, 64, torch.bfloat16)
    step.header[1] = 0
    assert run(replace(step, lengths=[])).shape[0] == 0


def test_what_does_not_fit_is_named() -> None:
    step = make_step([40, 50], 8, 2, 64, torch.bfloat16)
    plan = new_plan(step)
    rest = (step.tables, step.row_slots, step.device_lengths, step.header, plan)
    out = torch.empty(5, 512, dtype=torch.bfloat16, device=DEVICE)
    with pytest.raises(ValueError, match=r"^q: "):
        decode_attention(step.q[:, :4], step.pool, *rest, out)
    with pytest.raises(ValueError, match=r"^pool: "):
        decode_attention(step.q, step.pool.half(), *rest, out)
    with pytest.raises(ValueError, match=r"^out: "):
        decode_attention(step.q, step.pool, *rest, out[:, :256])
    with pytest.raises(ValueError, match=r"^heads: "):
        new_decode_plan(4, 9, 1, 64, torch.bfloat16, DEVICE)
