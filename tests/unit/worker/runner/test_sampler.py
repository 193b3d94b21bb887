"""Sampling follows its parameters, and draws depend on seed and counter alone."""

import math

import pytest
import torch

import octavo.worker.runner.cpu.sampler as sampler
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, gumbel

VOCABULARY = 1000


def draw(rows: int, **fields: list[float]) -> Draw:
    default: dict[str, list[float]] = {
        "temperature": [1.0] * rows,
        "top_k": [0] * rows,
        "top_p": [1.0] * rows,
        "seeds": [0] * rows,
        "counters": [0] * rows,
    }
    values = default | fields
    floats = {name: torch.tensor(values[name], dtype=torch.float32) for name in ("temperature", "top_p")}
    whole = {name: torch.tensor(values[name], dtype=torch.int64) for name in ("top_k", "seeds", "counters")}
    return Draw(**floats, **whole)


def sample(logits: torch.Tensor, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    return sampler.sample(logits, draw, Vocabulary(logits.shape[1]))


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


def test_temperature_zero_takes_the_best() -> None:
    given = logits(5)
    ids, finite = sample(given, draw(5, temperature=[0.0] * 5))
    assert torch.equal(ids, given.argmax(1)) and finite.all()


@pytest.mark.parametrize("temperature", [1e-45, 1e-9, 1e-5])
def test_a_tiny_temperature_is_greedy_and_never_nan(temperature: float) -> None:
    given = logits(4)
    given[:, 7] -= 100
    ids, finite = sample(given, draw(4, temperature=[0.0, temperature, temperature, 2.0]))
    assert torch.equal(ids[:3], given.argmax(1)[:3]) and finite.all()


@pytest.mark.parametrize("field", [{"top_k": [1] * 3}, {"top_p": [1e-9] * 3}])
def test_the_best_alone_is_left_by_the_tightest_filters(field: dict[str, list[float]]) -> None:
    given = logits(3)
    assert torch.equal(sample(given, draw(3, temperature=[2.0] * 3, **field))[0], given.argmax(1))


def test_top_k_and_top_p_draw_only_what_they_keep() -> None:
    chances = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    many = 3000
    given = chances.log().expand(many, -1)
    counters = list(range(many))
    by_k = sample(given, draw(many, top_k=[2] * many, counters=counters))[0]
    by_p = sample(given, draw(many, top_p=[0.8] * many, counters=counters))[0]
    assert set(by_k.tolist()) == {0, 1}
    assert set(by_p.tolist()) == {0, 1, 2}


def test_draws_have_the_probabilities_of_softmax() -> None:
    many = 40_000
    chances = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    ids = sample(chances.log().expand(many, -1), draw(many, counters=list(range(many))))[0]
    seen = torch.bincount(ids, minlength=5) / many
    assert (seen - chances).abs().max() < 5 * math.sqrt(0.25 / many)


def test_a_row_draws_the_same_in_any_batch() -> None:
    given = logits(6)
    seeds, counters = [5, 1, 2, 3, 9, -(2**62)], [0, 4, 100, 7, 1, 0]
    together = sample(given, draw(6, seeds=seeds, counters=counters))[0]
    for row in range(6):
        alone = sample(given[row : row + 1], draw(1, seeds=seeds[row : row + 1], counters=counters[row : row + 1]))[0]
        assert alone[0] == together[row]


def test_seeds_and_counters_change_the_noise() -> None:
    noise = gumbel(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), 50_000)
    assert torch.isfinite(noise).all()
    assert noise.mean(1) == pytest.approx([0.5772] * 3, abs=0.03)
    assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 0.02


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_fails_alone(bad: float) -> None:
    given = logits(3)
    given[1, 3] = bad
    ids, finite = sample(given, draw(3))
    assert finite.tolist() == [True, False, True]
    assert ids[0] == sample(given[:1], draw(1))[0][0]
