"""Silence is judged by one rule, and a judge that was away itself waits before it judges."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from octavo.shared.liveness import ROUTER, WORKER, Bounds, Presence

BOUNDS = st.sampled_from([WORKER, ROUTER])
# Steps of a quarter of a second, which floats hold exactly; the long ones are absences.
STEPS = st.lists(st.one_of(st.integers(1, 8), st.integers(9, 400)), min_size=1, max_size=60)


@dataclass
class Course:
    """Moments of checks, each with the last sign before it; an absent judge sees none of what came meanwhile."""

    checks: list[tuple[float, float]]

    def silences(self, bounds: Bounds) -> list[float]:
        presence, found = Presence(), []
        for now_s, sign_s in self.checks:
            presence = presence.checked(now_s, bounds)
            found.append(presence.silence_s(sign_s, now_s))
        return found


@st.composite
def courses(draw: st.DrawFn) -> Course:
    now_s, checks, sign_s = 1_000.0, [], 1_000.0
    for step in draw(STEPS):
        now_s += step / 4
        if draw(st.booleans()):
            sign_s = now_s - draw(st.integers(0, step)) / 4
        checks.append((now_s, sign_s))
    return Course(checks)


@given(courses(), BOUNDS)
def test_nothing_is_silent_before_its_judge_has_watched_for_the_bound(course: Course, bounds: Bounds) -> None:
    returned_s, before_s = -1e9, course.checks[0][0]
    for (now_s, _), silence_s in zip(course.checks, course.silences(bounds), strict=True):
        if now_s - before_s > bounds.late_check_s:
            returned_s = now_s
        before_s = now_s
        assert silence_s <= now_s - returned_s


@given(courses(), BOUNDS)
def test_a_judge_that_was_there_measures_from_the_last_sign(course: Course, bounds: Bounds) -> None:
    present = Bounds(bounds.silence_s, late_check_s=1e9)
    assert course.silences(present) == [now_s - sign_s for now_s, sign_s in course.checks]


@given(courses(), BOUNDS)
def test_it_is_the_rule_that_restarts_the_time_of_all_after_an_absence(course: Course, bounds: Bounds) -> None:
    expected, sign_s, before_s = [], 0.0, None
    for now_s, heard_s in course.checks:
        if before_s is not None and now_s - before_s > bounds.late_check_s:
            sign_s = now_s
        sign_s, before_s = max(sign_s, heard_s), now_s
        expected.append(now_s - sign_s)
    assert course.silences(bounds) == expected


@given(courses(), BOUNDS, st.integers(1, 8))
def test_what_has_gone_is_found_soon_after_the_bound_by_a_judge_that_stays(
    course: Course, bounds: Bounds, step: int
) -> None:
    (now_s, sign_s) = course.checks[-1]
    ends = [(now_s + number * step / 4, sign_s) for number in range(1, 40)]
    silences = Course([*course.checks, *ends]).silences(bounds)[len(course.checks) :]
    found = next(moment for (moment, _), silence_s in zip(ends, silences, strict=True) if silence_s > bounds.silence_s)
    assert found <= now_s + bounds.silence_s + step / 4


@given(courses(), BOUNDS)
def test_a_sign_ends_every_silence(course: Course, bounds: Bounds) -> None:
    now_s, _ = course.checks[-1]
    assert Course([*course.checks, (now_s + 0.25, now_s + 0.25)]).silences(bounds)[-1] == 0


def test_what_is_starting_has_longer() -> None:
    assert all(bounds.late_check_s < bounds.silence_s < bounds.starting_s for bounds in (WORKER, ROUTER))
