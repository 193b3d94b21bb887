"""Faults are drawn from a seed: the same again, of every kind, and only of the kinds that are asked for."""

import itertools

import pytest
from support.soak.fault_plan import KINDS, LONG_S, SHORT_S, kinds_of, plan


def test_a_seed_gives_the_same_faults_again_and_another_seed_others() -> None:
    first, again, other = (list(itertools.islice(plan(seed, KINDS, (1.0, 2.0)), 50)) for seed in (7, 7, 8))
    assert first == again != other
    assert all(1.0 <= one.pause_s <= 2.0 and 0.0 <= one.pick < 1.0 for one in first)
    assert {SHORT_S[0] <= one.stopped_s <= SHORT_S[1] or one.stopped_s == LONG_S for one in first} == {True}


def test_every_kind_of_fault_is_made_in_a_long_soak() -> None:
    made = {str(one.kind) for one in itertools.islice(plan(1, KINDS, (1.0, 2.0)), 1000)}
    assert made == {str(kind) for kind in KINDS}


def test_faults_are_asked_for_by_name() -> None:
    kinds = kinds_of("KILL core, STOP router process,burst")
    assert [str(kind) for kind in kinds] == ["KILL core", "STOP router process", "burst"]
    assert list(plan(1, kinds_of(""), (1.0, 2.0))) == []
    with pytest.raises(ValueError, match="no such fault: KILL kernel; there are KILL rank"):
        kinds_of("KILL kernel")
