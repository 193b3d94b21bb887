"""Figures by vLLM's definitions: each is checked against numbers that were worked out by hand, or against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.arithmetic import metrics
from octavo.bench.arithmetic.metrics import Answer, counted, is_good, measure

SECONDS = st.floats(0, 1e4)
# 100 ms to the first token, then 20 and 30 ms; 3 tokens.
ONE = Answer(start_s=1.0, ttft_s=0.1, gaps_s=(0.02, 0.03), latency_s=0.15, prompt_tokens=10, output_tokens=3)
# Five tokens in three chunks.
TWO = Answer(start_s=1.1, ttft_s=0.2, gaps_s=(0.1, 0.1), latency_s=0.4, prompt_tokens=20, output_tokens=5)
SINGLE = Answer(start_s=3.5, ttft_s=0.3, latency_s=0.3, prompt_tokens=5, output_tokens=1)
FAILED = Answer(start_s=0.0, ttft_s=9.0, latency_s=9.0, prompt_tokens=99, output_tokens=99, error="gone")


def test_each_figure_follows_its_definition() -> None:
    seen = measure([ONE, TWO, SINGLE, FAILED], 5.0, (50, 90), {})
    assert (seen.completed, seen.failed, seen.input_tokens, seen.output_tokens) == (3, 1, 35, 9)
    assert (seen.requests_s, seen.output_tok_s, seen.total_tok_s) == (0.6, 1.8, 8.8)
    assert seen.goodput is None
    assert seen.spreads["ttft"].mean == pytest.approx(200)
    assert seen.spreads["tpot"].mean == pytest.approx((25 + 50) / 2)  # not of the answer with one token
    assert seen.spreads["itl"].mean == pytest.approx((20 + 30 + 100 + 100) / 4)  # by chunk, whatever it carries
    assert seen.spreads["e2el"].median == pytest.approx(300)


def test_an_answer_of_one_token_counts_everywhere_but_in_tpot_and_itl() -> None:
    seen = measure([SINGLE], 1.0, (99,), {"tpot": 1.0}).spreads
    assert seen["tpot"].mean == seen["itl"].mean == seen["tpot"].percentiles[99] == 0
    assert seen["ttft"].mean == seen["e2el"].mean == pytest.approx(300)


def test_a_run_without_an_answer_has_zeros_and_no_error() -> None:
    seen = measure([FAILED], 2.0, (50, 99), {"ttft": 1.0})
    assert (seen.completed, seen.failed, seen.requests_s, seen.peak_requests, seen.peak_tok_s) == (0, 1, 0, 0, 0)
    assert seen.goodput == 0 and seen.spreads["ttft"].percentiles == {50: 0, 99: 0}


@pytest.mark.parametrize(
    ("objectives", "good"),
    [
        ({"ttft": 150}, 1),
        ({"ttft": 300}, 3),
        ({"tpot": 24}, 1),  # that of one token meets any
        ({"tpot": 25.1}, 2),
        ({"ttft": 250, "tpot": 25.1}, 1),
        ({"e2el": 350, "ttft": 500}, 2),
        ({"e2el": 0}, 0),
    ],
)
def test_goodput_counts_the_requests_that_meet_every_objective(objectives: dict[str, float], good: int) -> None:
    assert measure([ONE, TWO, SINGLE, FAILED], 2.0, (), objectives).goodput == pytest.approx(good / 2)


@given(SECONDS, SECONDS, st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_laxer_objective_is_met_whenever_the_stricter_one_is(a: float, b: float, low: float, more: float) -> None:
    answer = Answer(0.0, ttft_s=a, latency_s=a + b, output_tokens=2)
    for name in metrics.GOODPUT_NAMES:
        assert is_good(answer, {name: low + more}) or not is_good(answer, {name: low})


@given(st.lists(SECONDS, min_size=1, max_size=60), st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_percentiles_are_numpys(values: list[float], shares: list[float]) -> None:
    assert metrics.percentiles(values, shares) == pytest.approx(list(np.percentile(values, shares)), rel=1e-9, abs=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=60))
def test_a_spread_is_numpys_in_milliseconds(values: list[float]) -> None:
    seen = metrics.spread(values, (0, 100))
    wanted = [1e3 * float(f(values)) for f in (np.mean, np.median, np.std, np.min, np.max)]
    assert [seen.mean, seen.median, seen.std, *seen.percentiles.values()] == pytest.approx(wanted, rel=1e-6, abs=1e-5)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=40))
def test_the_peak_of_requests_is_the_most_at_any_moment(spans: list[tuple[int, int]]) -> None:
    spans = [(begin, begin + length) for begin, length in spans]
    by_moment = [sum(begin <= at < end for begin, end in spans) for at in range(45)]
    assert metrics.most_at_once(spans) == max(by_moment, default=0)


def test_the_fullest_second_counts_chunks_since_the_first_request() -> None:
    slow = Answer(start_s=10.0, ttft_s=0.9, gaps_s=(0.2, 0.1), latency_s=1.2)  # at 0.9 s, 1.1 s, 1.2 s
    late = Answer(start_s=11.5, ttft_s=0.1, latency_s=0.1)  # at 1.6 s
    assert metrics.fullest_second([slow, late]) == 3


def test_tokens_that_the_server_does_not_count_are_counted_in_the_text_else_in_the_chunks() -> None:
    answer = Answer(0.0, ttft_s=0.1, gaps_s=(0.1, 0.1), latency_s=0.3, text="one two")
    assert counted(answer, lambda text: len(text.split())).output_tokens == 2
    assert counted(answer, None).output_tokens == 3
    assert counted(ONE, lambda text: 77) == ONE and counted(FAILED, None) == FAILED
