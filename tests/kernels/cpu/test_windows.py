"""A sliding window hides what lies before it, for decoding rows and chunks of prompts, and nothing else."""

import pytest
import torch

from octavo.kernels import reference
from octavo.kernels.backend import choose
from octavo.kernels.cpu import backend as cpu
from octavo.kernels.paged import DecodeRows, Paged, PrefillRow, additive_mask, windowed

HEADS, KV_HEADS, DIM, BLOCK, BLOCKS = 4, 2, 8, 16, 12
WINDOWS = [1, 2, 15, 16, 17, 40, 63]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def rows(dtype: torch.dtype = torch.float32) -> Paged:
    """Two decoding rows of 64 and 5 tokens, and two chunks of prompts: 0..29 of one, 33..49 of another."""
    lengths = torch.tensor([64, 5])
    tables = torch.tensor([[0, 1, 2, 3], [4, BLOCKS, BLOCKS, BLOCKS]])
    mask = additive_mask(torch.arange(64) < lengths[:, None], dtype)[None, :, None, :]
    later = additive_mask(torch.arange(64) <= torch.arange(33, 50)[:, None], dtype)
    first, second = torch.tensor([5, 6]), torch.tensor([7, 8, 9, 10])
    prefills = (PrefillRow(2, 30, 0, first, None), PrefillRow(32, 17, 33, second, later))
    return Paged(torch.empty(0), DecodeRows(tables, lengths, mask), prefills)


def pool_and_queries(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    pool = torch.randn(2, KV_HEADS, BLOCKS + 1, BLOCK, DIM, dtype=dtype)
    return pool, torch.randn(2 + 30 + 17, HEADS, DIM, dtype=dtype)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_cpu_backend_agrees_with_the_reference(window: int) -> None:
    pool, q = pool_and_queries()
    ours = cpu.attention(q, pool, cpu.windowed(rows(), window, pool))
    torch.testing.assert_close(ours, reference.attention(q, pool, reference.windowed(rows(), window, pool)))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_what_lies_before_a_window_has_no_say(name: str, window: int) -> None:
    """The row of 64 tokens sees its last `window` ones; the others may be anything."""
    backend = choose(name)
    pool, q = pool_and_queries()
    seen = windowed(rows(), window, pool)
    before = backend.attention(q, pool, seen)[0]
    flat = pool.view(2, KV_HEADS, -1, DIM)
    flat[:, :, : 64 - window] = 1e3
    torch.testing.assert_close(backend.attention(q, pool, seen)[0], before)
    flat[:, :, 64 - window] = 1e3
    assert not torch.allclose(backend.attention(q, pool, seen)[0], before)


def test_half_precision_has_windows_too() -> None:
    pool, q = pool_and_queries(torch.bfloat16)
    ours = cpu.attention(q, pool, cpu.windowed(rows(torch.bfloat16), 17, pool))
    expected = reference.attention(q, pool, reference.windowed(rows(torch.bfloat16), 17, pool))
    torch.testing.assert_close(ours, expected, atol=2e-2, rtol=2e-2)


def test_a_step_that_a_window_does_not_reach_stays_as_it_is() -> None:
    step, (pool, _) = rows(), pool_and_queries()
    assert windowed(step, 64, pool) is step
    assert windowed(step, 63, pool).window == 63
