"""Requests are sent at the rate that was asked for, as evenly as was asked for."""

import math
import statistics
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.arithmetic.arrivals import offsets


def pauses(burstiness: float, count: int = 4_000, rate: float = 10.0) -> list[float]:
    sent = offsets(count, rate, burstiness, Random(1))
    return [later - earlier for earlier, later in pairwise(sent)]


@given(st.integers(1, 200), st.floats(0.01, 1e4), st.floats(0.05, 100) | st.just(math.inf), st.integers(0, 2**32))
def test_times_ascend_and_the_last_is_that_of_the_rate(count: int, rate: float, burstiness: float, seed: int) -> None:
    sent = offsets(count, rate, burstiness, Random(seed))
    assert len(sent) == count and sent[0] >= 0 and all(a <= b for a, b in pairwise(sent))
    assert sent[-1] == pytest.approx(count / rate)


@given(st.integers(0, 50), st.floats(0.1, 10))
def test_an_infinite_rate_sends_all_at_once(count: int, burstiness: float) -> None:
    assert offsets(count, math.inf, burstiness, Random(0)) == [0.0] * count


def test_the_same_seed_gives_the_same_times_and_another_gives_others() -> None:
    first, again, other = (offsets(50, 5.0, 1.0, Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, 25.0])
def test_pauses_vary_as_a_gamma_distribution_of_that_shape_does(burstiness: float) -> None:
    seen = pauses(burstiness)
    variation = statistics.stdev(seen) / statistics.fmean(seen)
    assert statistics.fmean(seen) == pytest.approx(0.1, rel=0.01)
    assert variation == pytest.approx(1 / math.sqrt(burstiness), rel=0.15)


def test_pauses_of_a_poisson_process_are_exponential() -> None:
    seen = sorted(pauses(1.0))
    for share in (0.1, 0.5, 0.9):
        assert seen[int(share * len(seen))] == pytest.approx(-0.1 * math.log(1 - share), rel=0.1)


def test_infinite_burstiness_is_a_metronome() -> None:
    assert pauses(math.inf, count=50) == pytest.approx([0.1] * 49)
