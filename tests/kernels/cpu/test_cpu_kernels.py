"""Both halves of the CPU backend give what the reference gives, within float32 rounding, also for odd shapes."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.kernels import reference
from octavo.kernels.backend import HeadNorms
from octavo.kernels.build import BuildError, build, sources
from octavo.kernels.cpu import backend as cpu
from octavo.kernels.cpu import native_ops as native
from octavo.kernels.cpu import torch_ops
from octavo.kernels.paged import DecodeRows, Paged, PrefillRow
from octavo.kernels.rope import inverse_frequencies

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
BLOCK = 16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def built() -> None:
    """The library as the sources are now."""
    try:
        build(*sources(["cpu"]))
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["plain", "avx2", "two threads", "portable"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A module, by what computes. The instruction sets' run in one thread."""
    if request.param == "portable":
        yield torch_ops
        return
    request.getfixturevalue("built")
    use, threads, sets = native.library().cpu_use, torch.get_num_threads(), ["plain", "avx2"]
    if request.param in sets and not use(sets.index(request.param)):
        pytest.skip(f"this processor has no {request.param}")
    torch.set_num_threads(2 if request.param == "two threads" else 1)
    yield native
    torch.set_num_threads(threads)
    assert any(use(rank) for rank in (1, 0))  # the best again


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 17, 300])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (960, 576), (130, 333), (70, 1000)], ids=str)
def test_linear_is_a_matrix_product(backend: Any, rows: int, size: tuple[int, int], biased: bool) -> None:
    weight, x, residual = torch.randn(size) / size[1] ** 0.5, torch.randn(rows, size[1]), torch.randn(rows, size[0])
    bias = torch.randn(size[0]) if biased else None
    expected = reference.linear(x, reference.matrix(weight, bias))
    torch.testing.assert_close(backend.linear(x, backend.matrix(weight, bias)), expected, **TOLERANCE)
    total = residual.clone()
    backend.linear_add(x, backend.matrix(weight, bias), total)
    torch.testing.assert_close(total, residual + expected, **TOLERANCE)


def test_rows_may_lie_apart(backend: Any) -> None:
    wide, weight, residual = torch.randn(5, 200), torch.randn(40, 70) / 8, torch.randn(5, 90)
    x, target, matrix = wide[:, 30:100], residual[:, :40], backend.matrix(weight)
    expected = x @ weight.T
    torch.testing.assert_close(backend.linear(x, matrix), expected, **TOLERANCE)
    torch.testing.assert_close(backend.linear(wide.T[:70].T, matrix), wide[:, :70] @ weight.T, **TOLERANCE)
    backend.linear_add(x, matrix, (total := target.clone()))
    torch.testing.assert_close(total, target + expected, **TOLERANCE)
    backend.linear_add(x, matrix, target)
    torch.testing.assert_close(target, total, **TOLERANCE)


@pytest.mark.parametrize("shape", [(1, 2), (1, 576), (33, 70), (300, 480)], ids=str)
def test_norms_and_the_activation_agree(backend: Any, shape: tuple[int, int]) -> None:
    x, norm, weight = torch.randn(shape), torch.randn(shape[1]), torch.randn(2 * shape[1], shape[1])
    torch.testing.assert_close(backend.rms_norm(x, norm, 1e-5), reference.rms_norm(x, norm, 1e-5), **TOLERANCE)
    weight *= 4 / shape[1] ** 0.5
    for name, bias in itertools.product(("norm_linear", "norm_linear_silu_mul"), (None, torch.randn(2 * shape[1]))):
        both = (getattr(which, name)(x, norm, 1e-5, which.matrix(weight, bias)) for which in (backend, reference))
        torch.testing.assert_close(*both, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so_and_in_its_row(backend: Any, bad: float) -> None:
    x, weight = torch.randn(7, 64), torch.randn(64, 64)
    x[3, 5] = bad
    out = backend.norm_linear_silu_mul(x, torch.ones(64), 1e-5, backend.matrix(weight))
    assert out.isfinite().all(dim=1).tolist() == [row != 3 for row in range(7)]


def test_a_row_is_the_same_alone_and_in_any_company(built: None) -> None:
    x, norm, matrix = torch.randn(70, 576), torch.randn(576), native.matrix(torch.randn(960, 576))
    alone = torch.cat([native.norm_linear(row[None], norm, 1e-5, matrix) for row in x])
    for rows in (2, 3, 4, 6, 7, 16, 70):
        assert torch.equal(native.norm_linear(x[:rows], norm, 1e-5, matrix), alone[:rows]), rows


def test_without_the_library_torch_does_the_work_and_the_log_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "cpu.so")
    for cached in (native.library, cpu._built):
        cached.cache_clear()
    try:
        x, weight = torch.randn(3, 8), torch.randn(5, 8)
        with caplog.at_level(logging.WARNING):
            made = [cpu.linear(x, cpu.matrix(weight)) for _ in range(2)]
        torch.testing.assert_close(made, [x @ weight.T] * 2)
        assert [("octavo.kernels.build cpu" in record.message) for record in caplog.records] == [True]
    finally:
        for cached in (native.library, cpu._built):
            cached.cache_clear()


def test_embeddings_agree() -> None:
    table, ids = torch.randn(11, 3), torch.tensor([0, 10, 10, 4])
    assert torch.equal(cpu.embed(ids, table), reference.embed(ids, table))


def test_embeddings_of_a_part_of_the_table_add_up_to_the_whole() -> None:
    table, ids = torch.randn(12, 3), torch.tensor([0, 11, 4, 7, 7, 8])
    for backend in (cpu, reference):
        parts = [backend.embed(ids, part, 4 * rank) for rank, part in enumerate(table.split(4))]
        assert torch.equal(torch.stack(parts).sum(0), table[ids])


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 2), (4, 2, 16), (9, 3, 64), (8, 1, 24)])
@pytest.mark.parametrize("tokens", [5, 300])
def test_rope_rotates_and_writes_alike(
    backend: Any, tokens: int, heads: int, kv_heads: int, dim: int, normed: bool
) -> None:
    qkv, positions = torch.randn(tokens, heads + 2 * kv_heads, dim), torch.randint(0, 100, (tokens,))
    norms = HeadNorms(torch.randn(dim), torch.randn(dim), 1e-6) if normed else None
    rows = Paged(torch.randperm(320)[:tokens], None, ())
    results = []
    for which in (backend, reference):
        tables = which.rotary(inverse_frequencies(dim, 10000.0), 100, torch.float32, torch.device("cpu"))
        pool = torch.zeros(2, kv_heads, 20, BLOCK, dim)
        at = which.rotary_at(tables, positions)
        results.append((which.rope_and_write(qkv.clone(), at, pool, rows, norms), pool))
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
        ([300, 129, 128], [(120, 20)]),
    ],
)
def test_attention_over_pages_agrees(
    backend: Any, heads: int, kv_heads: int, dim: int, decode: list[int], prefills: list[tuple[int, int]]
) -> None:
    blocks = 60
    rows = paged(decode, prefills, blocks)
    pool = torch.randn(2, kv_heads, blocks + 1, BLOCK, dim)
    tokens = len(decode) + sum(count for _, count in prefills)
    q = torch.randn(tokens, heads + 2 * kv_heads, dim)[:, :heads]  # as it lies in qkv
    torch.testing.assert_close(backend.attention(q, pool, rows), reference.attention(q, pool, rows), **TOLERANCE)


def test_attention_does_not_depend_on_how_a_prompt_is_cut(built: None) -> None:
    q, pool, table = torch.randn(200, 9, 64), torch.randn(2, 3, 20, BLOCK, 64), torch.randperm(20)[:13]
    whole = native.attention(q, pool, Paged(torch.empty(0), None, (PrefillRow(0, 200, 0, table, None),)))
    cut = Paged(torch.empty(0), None, (PrefillRow(0, 77, 0, table, None), PrefillRow(77, 123, 77, table, None)))
    assert torch.equal(native.attention(q, pool, cut), whole)
    steps = DecodeRows(table.expand(200, -1), torch.arange(1, 201), None)
    assert torch.equal(native.attention(q, pool, Paged(torch.empty(0), steps, ())), whole)
