"""Ranks that share a vocabulary draw what one rank draws, and filters keep what sorting the whole would keep."""

from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support.processes.threads import on_each

from octavo.worker.distributed.collective import Gathering
from octavo.worker.runner.cpu.filters import keep_likeliest
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, gumbel, sample

RANKS = pytest.mark.parametrize("ranks", [1, 2, 3, 4])


def sorted_filter(scaled: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """A mask of what stays, by sorting: of equal entries the lower id comes first."""
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scaled.shape[1])
    stays = rank < torch.where(top_k > 0, top_k, scaled.shape[1])[:, None]
    chances = ordered.masked_fill(~stays, float("-inf")).double().softmax(dim=-1)
    before = chances.cumsum(dim=-1) - chances
    stays &= (before < top_p[:, None] - 1e-12) | (rank == 0) | (top_p >= 1)[:, None]
    return torch.zeros_like(stays).scatter_(1, order, stays)


def columns(whole: torch.Tensor, collective: Gathering) -> torch.Tensor:
    """This rank's, padded as a model does it."""
    width = -(-whole.shape[1] // collective.size)
    padded = torch.nn.functional.pad(whole, (0, width * collective.size - whole.shape[1]), value=float("-inf"))
    return padded[:, collective.rank * width : (collective.rank + 1) * width].contiguous()


def kept(scaled: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, ranks: int) -> torch.Tensor:
    def work(collective: Gathering) -> torch.Tensor:
        return keep_likeliest(columns(scaled, collective), top_k, top_p, collective)

    return torch.cat(list(on_each(ranks, work)), dim=1)[:, : scaled.shape[1]]


def scaled_logits(rows: int, vocabulary: int, seed: int, kinds: int = 0) -> torch.Tensor:
    """At most 0. kinds: of values, so that many are equal; 0: all different."""
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 4
    if kinds:
        logits = (logits * kinds / 16).round() * 16 / kinds
    return logits - logits.max(dim=-1, keepdim=True).values


@RANKS
@pytest.mark.parametrize("kinds", [0, 3, 16])
@pytest.mark.parametrize("vocabulary", [1, 5, 513, 5000])
def test_filters_keep_what_sorting_keeps(ranks: int, kinds: int, vocabulary: int) -> None:
    top_k = torch.tensor([0, 1, 2, 40, 511, 513, 10_000, 0, 0, 7, 100, 100])
    top_p = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 1e-9, 0.5, 0.31, 0.999])
    scaled = scaled_logits(len(top_k), vocabulary, seed=vocabulary + kinds, kinds=kinds)
    expected = sorted_filter(scaled, top_k, top_p)
    assert torch.equal(kept(scaled, top_k, top_p, ranks), expected)


@given(
    st.lists(st.sampled_from([0.0, -0.0, -1e-30, -0.5, -0.7, -3.0, -60.0, -200.0, -float("inf")]), min_size=1),
    st.integers(0, 12),
    st.sampled_from([1.0, 0.97, 0.6, 0.26, 0.1]),
    st.integers(1, 4),
)
@example([0.0] * 10, 0, 0.5000001, 3)
def test_equal_entries_stay_by_their_ids(values: list[float], top_k: int, top_p: float, ranks: int) -> None:
    scaled = torch.tensor([[0.0, *values]])
    args = scaled, torch.tensor([top_k]), torch.tensor([top_p])
    assert torch.equal(kept(*args, ranks), sorted_filter(*args))


@RANKS
def test_the_same_ids_are_drawn_on_every_rank_as_on_one(ranks: int) -> None:
    rows, vocabulary = 60, 513
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(1)) * 3
    logits[::7] = logits[::7].round()
    index = torch.arange(rows)
    draw = Draw(
        temperature=torch.tensor([0.0, 1.0, 0.7, 100.0, 1e-6])[index % 5],
        top_k=torch.tensor([0, 1, 50, 600])[index % 4],
        top_p=torch.tensor([1.0, 0.9, 0.3])[index % 3],
        seeds=index * 977 - 5000,
        counters=index,
    )
    alone, finite = sample(logits, draw, Vocabulary(vocabulary))
    assert finite.all() and torch.equal(alone[::5], logits.max(dim=-1).indices[::5])

    def work(collective: Gathering) -> tuple[torch.Tensor, torch.Tensor]:
        part = columns(logits, collective)
        return sample(part, draw, Vocabulary(vocabulary, collective.rank * part.shape[1], collective))

    for ids, finite in on_each(ranks, work):
        assert torch.equal(ids, alone) and finite.all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 300, 512])
def test_a_row_fails_on_every_rank_when_one_sees_that_it_is_not_finite(bad: float, place: int) -> None:
    logits = torch.randn(2, 513)
    logits[1, place] = bad
    zero, one = torch.zeros(2, dtype=torch.int64), torch.ones(2)
    draw = Draw(temperature=one, top_k=zero + 5, top_p=one / 2, seeds=zero, counters=zero)

    def work(collective: Gathering) -> Any:
        part = columns(logits, collective)
        return sample(part, draw, Vocabulary(513, collective.rank * part.shape[1], collective))[1].tolist()

    assert on_each(4, work) == [[True, False]] * 4


def test_noise_is_of_the_id_and_not_of_the_column() -> None:
    seeds, counters = torch.tensor([4, -9]), torch.tensor([0, 77])
    whole = gumbel(seeds, counters, 513)
    parts = [gumbel(seeds, counters, 129, first) for first in range(0, 513, 129)]
    torch.testing.assert_close(torch.cat(parts, dim=1)[:, :513], whole, rtol=1e-6, atol=1e-6)
