"""The gate's verdicts: what is slower fails, what is noise does not, and nothing is compared with something else."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import comparison
import gate
from comparison import Figure, compare, compare_all, merged


def rate(*runs: float, name: str = "8b decode64") -> Figure:
    return Figure(name, "tok/s", True, runs)


@pytest.mark.parametrize("lost", [0.05, 0.1, 0.5])
def test_what_is_slower_by_more_than_is_allowed_fails(lost: float) -> None:
    verdict = compare(rate(100, 100.2, 99.9), rate(*(run * (1 - lost) for run in (100, 100.2, 99.9))), 0.03)
    assert verdict.failed and verdict.gain == pytest.approx(-lost)


@pytest.mark.parametrize("lost", [-0.5, 0.0, 0.02])
def test_what_is_faster_or_slower_by_less_passes(lost: float) -> None:
    assert not compare(rate(100, 100.2, 99.9), rate(*(run * (1 - lost) for run in (100, 100.2, 99.9))), 0.03).failed


def test_a_time_that_grows_is_a_loss() -> None:
    before, now = (Figure("schedule", "us", False, runs) for runs in ((100.0, 101.0), (120.0, 121.0)))
    assert compare(before, now, 0.03).failed and not compare(now, before, 0.03).failed


def test_a_loss_within_the_noise_passes_and_one_beyond_it_fails() -> None:
    noisy = rate(100, 80, 120, 95, 105)
    assert not compare(noisy, rate(94, 75, 113, 89, 99), 0.03).failed
    assert compare(noisy, rate(60, 48, 72, 57, 63), 0.03).failed


def test_one_odd_run_neither_hides_a_loss_nor_makes_one_up() -> None:
    assert compare(rate(100, 101, 99, 100, 101, 99), rate(85, 86, 84, 85, 86, 100), 0.03).failed
    assert not compare(rate(100, 101, 99, 100, 101, 99), rate(100, 101, 99, 100, 101, 50), 0.03).failed


def test_equal_trees_pass_in_a_thousand_comparisons_with_few_exceptions() -> None:
    rng = random.Random(1)
    failed = 0
    for _ in range(1000):
        sides = [rate(*(100 * rng.gauss(1, 0.01) for _ in range(6))) for _ in range(2)]
        failed += compare(*sides, 0.03).failed
    assert failed <= 1


def test_of_a_single_run_nothing_is_known() -> None:
    assert not compare(rate(100), rate(50), 0.03).failed


def test_turns_are_merged_and_what_only_one_tree_has_is_named() -> None:
    turns = [[rate(1, 2), rate(5, name="1b prefill")], [rate(3)]]
    before = merged(turns)
    assert {figure.name: figure.runs for figure in before} == {"8b decode64": (1, 2, 3), "1b prefill": (5,)}
    verdicts, single = compare_all(before, [rate(2, 2, 2), rate(7, name="8b long8")], 0.03)
    assert [one.name for one in verdicts] == ["8b decode64"] and single == ["1b prefill", "8b long8"]


def test_figures_are_read_from_what_the_benchmarks_write() -> None:
    row = {"shape": "8b", "workload": "prefill", "tok_s": 1000.0, "seconds": 2.0, "runs": [2.0, 2.5]}
    assert gate.engine_figures([row]) == [Figure("8b prefill", "tok/s", True, (1000.0, 800.0))]
    results = {"running": 256, "limit_us": 300, "steady": {"schedule_plus_update_us": 104.0}}
    assert gate.schedule_figures(results) == [Figure("schedule steady", "us", False, (104.0,))]


def test_the_table_says_what_failed() -> None:
    lines = comparison.table([compare(rate(100, 100, 100), rate(50, 50, 50), 0.03)]).splitlines()
    assert len(lines) == 2 and "-50.0%" in lines[1] and lines[1].endswith("FAILED")
