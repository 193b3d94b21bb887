"""The CPU backend gives what the reference gives, within float32 rounding, also for odd shapes."""

import itertools

import pytest
import torch

from octavo.kernels import cpu, reference
from octavo.kernels.backend import HeadNorms
from octavo.kernels.paged import DecodeRows, Paged, PrefillRow
from octavo.kernels.rope import inverse_frequencies

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
BLOCK = 16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 17, 130])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (960, 576), (130, 33)], ids=str)
def test_linear_is_a_matrix_product(rows: int, size: tuple[int, int], biased: bool) -> None:
    weight, x, residual = torch.randn(size) / size[1] ** 0.5, torch.randn(rows, size[1]), torch.randn(rows, size[0])
    bias = torch.randn(size[0]) if biased else None
    expected = reference.linear(x, reference.matrix(weight, bias))
    torch.testing.assert_close(cpu.linear(x, cpu.matrix(weight, bias)), expected, **TOLERANCE)
    total = residual.clone()
    cpu.linear_add(x, cpu.matrix(weight, bias), total)
    torch.testing.assert_close(total, residual + expected, **TOLERANCE)


@pytest.mark.parametrize("shape", [(1, 2), (1, 576), (33, 70)], ids=str)
def test_norms_and_the_activation_agree(shape: tuple[int, int]) -> None:
    x, norm, weight = torch.randn(shape), torch.randn(shape[1]), torch.randn(2 * shape[1], shape[1])
    torch.testing.assert_close(cpu.rms_norm(x, norm, 1e-5), reference.rms_norm(x, norm, 1e-5), **TOLERANCE)
    weight /= shape[1] ** 0.5
    for name in ("norm_linear", "norm_linear_silu_mul"):
        ours, oracle = (getattr(backend, name)(x, norm, 1e-5, backend.matrix(weight)) for backend in (cpu, reference))
        torch.testing.assert_close(ours, oracle, atol=3e-5, rtol=3e-5)


def test_embeddings_agree() -> None:
    table, ids = torch.randn(11, 3), torch.tensor([0, 10, 10, 4])
    assert torch.equal(cpu.embed(ids, table), reference.embed(ids, table))


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 2), (4, 2, 16), (9, 3, 64), (8, 1, 24)])
def test_rope_rotates_and_writes_alike(heads: int, kv_heads: int, dim: int, normed: bool) -> None:
    qkv, positions = torch.randn(5, heads + 2 * kv_heads, dim), torch.tensor([0, 1, 7, 90, 3])
    norms = HeadNorms(torch.randn(dim), torch.randn(dim), 1e-6) if normed else None
    rows = Paged(torch.tensor([3, 40, 17, 0, 63]), None, ())
    results = []
    for backend in (cpu, reference):
        tables = backend.rotary(inverse_frequencies(dim, 10000.0), 100, torch.float32, torch.device("cpu"))
        pool = torch.zeros(2, kv_heads, 4, BLOCK, dim)
        at = backend.rotary_at(tables, positions)
        results.append((backend.rope_and_write(qkv.clone(), at, pool, rows, norms), pool))
    torch.testing.assert_close(results[0], results[1], **TOLERANCE)


def paged(decode: list[int], prefills: list[tuple[int, int]], blocks: int) -> Paged:
    """decode: lengths; prefills: (start, count). Tables are drawn without repetition from `blocks`, padded with it."""
    free = iter(torch.randperm(blocks).tolist())
    width = -(-max(decode, default=1) // BLOCK)
    tables, rows = torch.full((len(decode), width), blocks), []
    for row, length in enumerate(decode):
        needed = -(-length // BLOCK)
        tables[row, :needed] = torch.tensor(list(itertools.islice(free, needed)))
    begin, places = len(decode), torch.arange(width * BLOCK)
    for start, count in prefills:
        table = torch.tensor(list(itertools.islice(free, -(-(start + count) // BLOCK))))
        allowed = torch.arange(len(table) * BLOCK) <= torch.arange(start, start + count)[:, None]
        rows.append(PrefillRow(begin, count, start, table, mask(allowed) if start else None))
        begin += count
    lengths = torch.tensor(decode)
    decoding = DecodeRows(tables, lengths, mask(places < lengths[:, None])[None, :, None, :]) if decode else None
    return Paged(torch.empty(0), decoding, tuple(rows))


def mask(allowed: torch.Tensor) -> torch.Tensor:
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 2), (4, 2, 16), (9, 3, 64), (8, 1, 24)])
@pytest.mark.parametrize(
    ("decode", "prefills"),
    [
        ([1], []),
        ([1, 16, 17, 33, 5], []),
        ([], [(0, 2)]),
        ([], [(0, 16), (0, 33), (15, 2), (16, 17), (47, 5)]),
        ([31, 2], [(5, 20), (0, 3)]),
    ],
)
def test_attention_over_pages_agrees(
    heads: int, kv_heads: int, dim: int, decode: list[int], prefills: list[tuple[int, int]]
) -> None:
    blocks = 24
    rows = paged(decode, prefills, blocks)
    pool = torch.randn(2, kv_heads, blocks + 1, BLOCK, dim)
    q = torch.randn(len(decode) + sum(count for _, count in prefills), heads, dim)
    torch.testing.assert_close(cpu.attention(q, pool, rows), reference.attention(q, pool, rows), **TOLERANCE)
