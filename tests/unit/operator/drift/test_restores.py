"""When an object that others change is applied again, and when it counts as a conflict."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from octavo.operator.drift.restores import FREE, MAX_DELAY_S, QUIET_S, ROW_S, Drift
from octavo.operator.groups.snapshot import FieldConflict

KEY = ("Deployment", "chat-router")
BY = FieldConflict(*KEY, "spec.replicas", "hpa")


def _fight(drift: Drift, delays: list[float], end: float, now: float = 0.0) -> list[float]:
    """Times of the applies, against an opponent that changes the object after these delays, the last one for ever."""
    drift.applied(KEY, 1, now)
    times = [now]
    for delay_s in itertools.chain(delays, itertools.repeat(delays[-1])):
        now += delay_s
        at = drift.changed(KEY, 1, now)
        if at > end:
            return times
        if drift.wants_cause(KEY):
            drift.found(KEY, BY)
        assert drift.changed(KEY, 1, at) == at, "once it is due it is due"
        drift.applied(KEY, 1, at)
        times.append(at)
        now = at
    raise AssertionError


def test_the_first_changes_are_corrected_at_once_and_further_ones_after_growing_delays() -> None:
    drift = Drift()
    times = _fight(drift, [0.01], 4000.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps[:FREE]) < 0.02
    assert [round(gap) for gap in gaps[FREE : FREE + 4]] == [2, 4, 8, 16]
    assert max(gaps) == MAX_DELAY_S or abs(max(gaps) - MAX_DELAY_S) < 1
    assert drift.conflicts(times[-1]) == (BY,)


@given(st.lists(st.floats(0.0, QUIET_S * 0.9), min_size=1, max_size=20))
def test_whatever_the_opponents_delays_the_writes_are_bounded(delays: list[float]) -> None:
    times = _fight(Drift(), delays, 600.0)
    assert len(times) <= FREE + 1 + 10
    for at in times:
        assert sum(at <= other <= at + 30.0 for other in times) <= FREE + 6


@given(st.lists(st.floats(0.0, 5 * ROW_S), min_size=1, max_size=20))
def test_an_opponent_that_waits_gains_no_more_than_one_row_each_quiet_time(delays: list[float]) -> None:
    times = _fight(Drift(), [*delays, 60.0], 2000.0)
    for at in times:
        window = [other for other in times if at <= other <= at + 30.0]
        assert len(window) <= 2 * (FREE + 6)


def test_a_conflict_ends_once_the_object_has_held_twice_as_long_as_before() -> None:
    drift = Drift()
    times = _fight(drift, [20.0], 400.0)
    now = times[-1]
    drift.held(KEY, now + 1)
    assert drift.conflicts(now + 39) == (BY,)
    assert drift.settles_s(now + 1) == 39.0
    assert drift.conflicts(now + 41) == () and drift.settles_s(now + 41) is None
    assert drift.changed(KEY, 1, now + 42) == now + 42, "the next change begins another row"


def test_a_conflict_whose_object_is_not_desired_any_more_ends() -> None:
    drift = Drift()
    now = _fight(drift, [0.1], 100.0)[-1]
    drift.changed(KEY, 1, now + 1)
    assert drift.conflicts(now + 100) == (BY,) and drift.pending_s(now + 100) == 0.0
    assert drift.conflicts(now + 1000) == () and drift.pending_s(now + 1000) is None
    drift = Drift()
    _fight(drift, [0.1], 100.0)
    drift.forget(KEY)
    assert drift.conflicts(100.0) == ()


def test_another_desired_object_is_applied_at_once_and_is_no_restore() -> None:
    drift, now = Drift(), 0.0
    for desired in range(20):
        assert drift.changed(KEY, desired, now) == now
        drift.applied(KEY, desired, now)
        now += 0.1
    assert not drift.wants_cause(KEY) and drift.conflicts(now) == ()


def test_an_answer_that_is_not_as_desired_is_pending_without_another_look() -> None:
    drift, now = Drift(), 0.0
    drift.applied(KEY, 1, now, holds=False)
    assert drift.is_rewritten(KEY) and drift.pending_s(now) == 0.0
    for _ in range(FREE):
        assert drift.changed(KEY, 1, now) == now
        if drift.wants_cause(KEY):
            drift.found(KEY, BY)
        drift.applied(KEY, 1, now, holds=False)
    assert drift.conflicts(now) == (BY,)
    pending_s = drift.pending_s(now)
    assert pending_s is not None and pending_s > 1.0
    drift.held(KEY, now + 1)
    assert drift.pending_s(now + 1) is None


def test_the_cause_is_looked_for_once_for_each_change() -> None:
    drift, now = Drift(), 0.0
    drift.applied(KEY, 1, now)
    looks = 0
    for _ in range(5):
        now = max(now + 0.1, drift.changed(KEY, 1, now + 0.1))
        for _ in range(3):
            drift.changed(KEY, 1, now)
            looks += drift.wants_cause(KEY)
        drift.applied(KEY, 1, now)
    assert looks == 5 - (FREE - 1)
