"""What the scheduler makes of whole loads, on a simulated GPU and a clock of its own (benchmarks/goodput.py)."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

import goodput
from goodput import LOUD_S, QUIET_S, SETTLE_S, at_once
from report import percentile
from simulation import Arrival, Simulation, alone_s


def run(arrivals: list[Arrival], interval_s: float | None = None) -> tuple[Simulation, float]:
    simulation = Simulation(arrivals, 256, interval_s)
    return simulation, simulation.run()


@pytest.mark.parametrize(("requests", "prompt", "new"), [(24, 2600, 100), (4, 32_768, 20), (3, 60_000, 2)])
def test_prompts_that_come_together_are_read_about_as_fast_as_with_nothing_beside_them(
    requests: int, prompt: int, new: int
) -> None:
    simulation, _ = run(at_once(requests, prompt, new))
    assert max(seen.first_s for seen in simulation.seen) <= 1.1 * requests * alone_s(prompt)


def test_established_streams_keep_their_pace_beside_long_prompts_that_are_answered() -> None:
    simulation, _ = run(goodput.steady())
    begin, end = SETTLE_S + QUIET_S, SETTLE_S + QUIET_S + LOUD_S

    def p99(low: float, high: float) -> float:
        streams = [seen.tokens_s for seen in simulation.seen[:16]]
        return percentile([b - a for times in streams for a, b in pairwise(times) if low <= b < high], 99)

    assert p99(begin, end) <= 2.5 * p99(SETTLE_S, begin)
    assert all(seen.tokens_s for seen in simulation.seen)


@pytest.mark.parametrize("interval_s", [0.02, 0.06])
def test_an_interval_is_kept_in_a_rush(interval_s: float) -> None:
    simulation, _ = run(at_once(24, 2600, 60), interval_s)
    gaps = [gap for seen in simulation.seen for gap in seen.gaps_s]
    assert percentile(gaps, 99) <= 1.2 * interval_s


def test_a_longer_interval_answers_waiting_requests_sooner() -> None:
    def last_first(interval_s: float) -> float:
        simulation, _ = run(at_once(16, 2600, 60), interval_s)
        return max(seen.first_s for seen in simulation.seen)

    assert last_first(0.012) > last_first(0.06) > last_first(1.0)


def test_a_prompt_that_has_waited_long_is_no_longer_read_gently() -> None:
    """A prompt of 100,000 tokens comes when streams have run for a second: while it waits they become its peers."""
    streams = [Arrival(0.0, 128, 3000) for _ in range(8)]
    simulation, _ = run([*streams, Arrival(1.0, 100_000, 1)])
    assert simulation.seen[8].first_s <= 1.5 * alone_s(100_000)


def test_a_long_prompt_and_a_stream_of_short_ones_do_not_keep_each_other_out() -> None:
    """Eight seconds of short prompts, each of which finds a step, and a long one that is read in long steps."""
    streams = [Arrival(0.0, 128, 3000, until_s=20.0) for _ in range(8)]
    for gap_s, most_s in ((0.005, 2.0), (0.008, 1.3)):
        shorts = [Arrival(1.0 + gap_s * turn, 40, 1) for turn in range(int(8 / gap_s))]
        simulation, _ = run([*streams, Arrival(1.2, 60_000, 1), *shorts])
        assert simulation.seen[8].first_s <= 2 * alone_s(60_000), "it is read while they come"
        assert percentile([seen.first_s for seen in simulation.seen[9:]], 99) <= most_s
