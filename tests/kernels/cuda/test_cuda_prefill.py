"""Prefill attention gives what float64 gives, within what its dtype rounds, and writes its own tokens only.

Tolerances are of the error of a token and head, relative to the length of its exact result: a 16-bit dtype rounds the
probabilities and the result once each.
"""

import itertools
from dataclasses import dataclass

import pytest
import torch

from octavo.kernels.cuda.attention.prefill import PrefillTiles, new_prefill_tiles, prefill_attention, prefill_plan

pytestmark = pytest.mark.gpu

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 5e-6}
BLOCK, WIDTH, SLOTS = 16, 1280, 24
DEVICE = torch.device("cuda")


@dataclass(frozen=True)
class Shape:
    heads: int = 8
    kv_heads: int = 2
    dim: int = 64
    dtype: torch.dtype = torch.bfloat16


class Step:
    """Fixed buffers for `tokens` and `rows`, filled with (start, count) of rows; the first may be decode rows."""

    def __init__(self, shape: Shape, tokens: int, rows: int, blocks: int = 1800, window: int = 0) -> None:
        self.window = window
        self.shape, self.tokens, self.rows = shape, tokens, rows
        like = {"dtype": shape.dtype, "device": DEVICE}
        self.pool = torch.empty(2, shape.kv_heads, blocks + 1, BLOCK, shape.dim, **like)
        self.qkv = torch.empty(tokens, shape.heads + 2 * shape.kv_heads, shape.dim, **like)
        self.out = torch.empty(tokens, shape.heads * shape.dim, **like)
        self.header, self.row_slots, self.starts, self.counts, self.begins = (
            torch.zeros(size, dtype=torch.int32, device=DEVICE) for size in (16, rows, rows, rows, rows)
        )
        self.tables = torch.full((SLOTS + 1, WIDTH), blocks, dtype=torch.int32, device=DEVICE)
        self.tiles: PrefillTiles = new_prefill_tiles(tokens, rows, shape.heads, self.pool, window)

    def fill(self, rows: list[tuple[int, int]], decoding: int = 0) -> None:
        """Random contents; what no row may read is not a number, what a window hides is large."""
        blocks = self.pool.shape[2] - 1
        free = iter(torch.randperm(blocks).tolist())
        slots = torch.randperm(SLOTS)[: len(rows)]
        self.pool.fill_(torch.nan)
        self.qkv.normal_()
        self.tables.fill_(blocks)
        for slot, (start, count) in zip(slots.tolist(), rows, strict=True):
            length = start + count
            used = torch.tensor(list(itertools.islice(free, -(-length // BLOCK))), device=DEVICE)
            self.tables[slot, : len(used)] = used
            places = torch.arange(length, device=DEVICE)
            flat = self.pool.view(2, self.shape.kv_heads, -1, self.shape.dim)
            new = torch.randn(2, self.shape.kv_heads, length, self.shape.dim, device=DEVICE).to(self.shape.dtype)
            if self.window:
                new[:, :, : max(0, start + 1 - self.window)] = 1e3
            flat[:, :, used[places // BLOCK] * BLOCK + places % BLOCK] = new
        padding = self.rows - len(rows)
        starts, counts = ([row[i] for row in rows] for i in (0, 1))
        begins = [0, *itertools.accumulate(counts)][:-1]
        for buffer, values, pad in (
            (self.row_slots, slots.tolist(), SLOTS),
            (self.starts, starts, 0),
            (self.counts, counts, 0),
            (self.begins, begins, 0),
        ):
            buffer.copy_(torch.tensor([*values, *[pad] * padding], dtype=torch.int32))
        self.header.copy_(torch.tensor([len(rows), decoding, sum(counts), *[0] * 13], dtype=torch.int32))
        self.out.fill_(torch.nan)

    def launch(self) -> None:
        prefill_plan(self.tiles, self.header, self.row_slots, self.starts, self.counts, self.begins)
        prefill_attention(self.qkv[:, : self.shape.heads], self.pool, self.tables, self.tiles, self.out)

    def row(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """[count, h, d] of a row: what was written, and what float64 gives."""
        slot, start, count, begin = (
            int(buffer[index]) for buffer in (self.row_slots, self.starts, self.counts, self.begins)
        )
        tokens = slice(begin, begin + count)
        table = self.tables[slot, : -(-(start + count) // BLOCK)].long()
        keys, values = (part[:, table].flatten(1, 2)[:, : start + count].double() for part in self.pool)
        positions = torch.arange(start, start + count, device=DEVICE)
        after = torch.arange(start + count, device=DEVICE) - positions[:, None]
        hidden = (after > 0) | (after <= -self.window) if self.window else after > 0
        exact = torch.empty(count, self.shape.heads, self.shape.dim, dtype=torch.float64, device=DEVICE)
        for head in range(self.shape.heads):
            kv_head = head // (self.shape.heads // self.shape.kv_heads)
            scores = self.qkv[tokens, head].double() @ keys[kv_head].T * self.shape.dim**-0.5
            exact[:, head] = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values[kv_head]
        return self.out[tokens].view(count, self.shape.heads, self.shape.dim), exact

    def check(self) -> None:
        rows, decoding, tokens = self.header[:3].tolist()
        first = int(self.counts[:decoding].sum())
        assert self.out[:first].isnan().all(), "a decode row was written"
        assert self.out[tokens:].isnan().all(), "padding was written"
        for index in range(decoding, rows):
            written, exact = self.row(index)
            error = (written.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
            worst = error.nan_to_num(torch.inf).max().item()
            assert worst < TOLERANCE[self.shape.dtype], f"row {index}: {worst:.2e}"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def checked(shape: Shape, rows: list[tuple[int, int]], decoding: int = 0, window: int = 0) -> None:
    step = Step(shape, sum(count for _, count in rows) + 37, len(rows) + 3, window=window)
    step.fill(rows, decoding)
    step.launch()
    step.check()


EDGES = [
    (0, 1),
    (0, 2),
    (0, 15),
    (0, 16),
    (0, 17),
    (111, 17),
    (127, 128),
    (128, 129),
    (159, 160),
    (160, 161),
    (1000, 2),
    (5, 300),
]
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))


@dtypes
@pytest.mark.parametrize("dim", [64, 96, 128])
def test_rows_of_every_length_and_prefix_are_exact(dim: int, dtype: torch.dtype) -> None:
    checked(Shape(dim=dim, dtype=dtype), EDGES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("group", range(1, 9))
def test_heads_share_keys_in_groups_of_any_size(group: int, dim: int, dtype: torch.dtype) -> None:
    checked(Shape(heads=3 * group, kv_heads=3, dim=dim, dtype=dtype), [(0, 200), (77, 130), (300, 3)])


@dtypes
@pytest.mark.parametrize("dim", [64, 128])
def test_long_prompts_are_exact(dim: int, dtype: torch.dtype) -> None:
    checked(Shape(heads=4, kv_heads=1, dim=dim, dtype=dtype), [(0, 4097), (4000, 513)])


# Of tiles too few to keep a device busy, each is divided; what is before the 2,048th key never is, of heads
# of 128 what is before the 2,080th.
CHUNKS = {
    "one query": [(9000, 1), (9000, 2)],
    "at an edge": [(2047, 2), (2048, 16), (4095, 33), (4096, 1), (6143, 130)],
    "at an edge of 160": [(2079, 2), (2080, 16), (4159, 33), (4160, 1), (6239, 130)],
    "one chunk": [(20000, 100)],
    "beside short ones": [(0, 40), (12000, 200), (2100, 7), (0, 3000)],
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("dim", [64, 96, 128])
@pytest.mark.parametrize("rows", CHUNKS.values(), ids=CHUNKS)
def test_chunks_after_long_prefixes_are_exact(rows: list[tuple[int, int]], dim: int, dtype: torch.dtype) -> None:
    step = Step(Shape(dim=dim, dtype=dtype), sum(count for _, count in rows) + 37, len(rows) + 3)
    for _ in range(3):  # what a launch leaves must suit the next
        step.tiles.sums.fill_(torch.nan)
        step.tiles.bounds.fill_(torch.nan)
        step.fill(rows)
        step.launch()
        step.check()
    assert not step.tiles.arrivals.any()


@dtypes
@pytest.mark.parametrize("dim", [64, 96, 128])
@pytest.mark.parametrize("window", [1, 16, 100, 127, 128, 129, 1000, 30_000])
def test_rows_seen_through_a_window_are_exact(window: int, dim: int, dtype: torch.dtype) -> None:
    checked(Shape(dim=dim, dtype=dtype), [*EDGES, (0, 700), (3000, 129), (2049, 3)], window=window)


@dtypes
@pytest.mark.parametrize("group", range(1, 9))
def test_groups_of_any_size_look_through_a_window(group: int, dtype: torch.dtype) -> None:
    checked(Shape(heads=3 * group, kv_heads=3, dim=128, dtype=dtype), [(0, 400), (777, 130), (300, 3)], window=150)


def test_keys_are_divided_into_as_many_parts_as_keep_the_device_busy() -> None:
    step = Step(Shape(), 200, 1)
    step.fill([(20000, 100)])
    step.launch()
    count = int(step.tiles.tiles[0, 0])
    begins, ends, parts = (step.tiles.tiles[1 : 1 + count, column].tolist() for column in (4, 5, 7))
    assert min(parts) > 1
    assert count <= 3 * step.tiles.enough
    assert all(end - begin <= 2 * 2048 for begin, end in zip(begins, ends, strict=True))


@pytest.mark.parametrize("group", range(1, 9))
def test_heads_share_divided_keys_in_groups_of_any_size(group: int) -> None:
    checked(Shape(heads=3 * group, kv_heads=3, dim=128), [(5000, 130), (7000, 3)])


def test_decode_rows_and_padding_are_left_alone() -> None:
    checked(Shape(), [(40, 1), (7, 1), (0, 1), (0, 33), (513, 64)], decoding=3)


def test_a_step_without_such_rows_writes_nothing() -> None:
    checked(Shape(), [(40, 1), (7, 1)], decoding=2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_large_scores_do_not_overflow(dtype: torch.dtype) -> None:
    step = Step(Shape(dtype=dtype), 700, 2)
    step.fill([(0, 600)])
    step.qkv *= 30
    step.launch()
    step.check()


@dtypes
def test_a_graph_replays_with_new_rows(dtype: torch.dtype) -> None:
    step = Step(Shape(dtype=dtype), 1200, 8)
    step.fill([(0, 500), (33, 400)])
    step.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.launch()
    for rows, decoding in (
        ([(9, 1), (100, 1), (0, 1000)], 2),
        (EDGES[5:], 0),
        ([(3, 1)], 1),
        ([(15000, 64)], 0),
        ([(0, 500), (33, 400)], 0),
    ):
        step.fill(rows, decoding)
        graph.replay()
        step.check()


@dtypes
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("window", [0, 200])
def test_a_prompt_gives_the_same_bits_in_chunks(window: int, dim: int, dtype: torch.dtype) -> None:
    step = Step(Shape(dim=dim, dtype=dtype), 1000, 2, window=window)
    step.fill([(0, 1000)])
    step.launch()
    whole, q = step.out.clone(), step.qkv.clone()
    for start, count in ((0, 7), (7, 250), (257, 511), (768, 232)):
        step.starts[0], step.counts[0], step.header[2] = start, count, count
        step.qkv[:count] = q[start : start + count]
        step.launch()
        assert torch.equal(step.out[:count], whole[start : start + count])


def test_shapes_without_a_kernel_are_refused() -> None:
    pool = torch.empty(2, 3, 5, BLOCK, 64, device=DEVICE, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="heads"):
        new_prefill_tiles(64, 4, 8, pool)
    with pytest.raises(ValueError, match="pool"):
        new_prefill_tiles(64, 4, 9, pool[..., :32])
