"""The pace of each key: never more than its bucket allows, never later than that."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.operator.pace import Pace

steps = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 24).map(lambda eighths: eighths / 8)), max_size=60)


@given(st.integers(1, 5), steps)
def test_no_window_has_more_than_the_burst_and_one_each_interval(burst: int, asked: list[tuple[str, float]]) -> None:
    pace, now, taken = Pace(burst, 1.0), 0.0, list[tuple[str, float]]()
    for key, pause_s in asked:
        now += pause_s
        if pace.next_at(key, now) <= now:
            pace.take(key, now)
            taken.append((key, now))
    for key in "ab":
        times = [at for of, at in taken if of == key]
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= burst + times[last] - times[first] + 1e-6


@given(st.integers(1, 5), steps)
def test_a_key_that_is_not_asked_for_has_its_burst_again(burst: int, asked: list[tuple[str, float]]) -> None:
    pace, now = Pace(burst, 1.0), 0.0
    for key, pause_s in asked:
        now = pace.next_at(key, now + pause_s)
        pace.take(key, now)
    now += burst + 1
    for _ in range(burst):
        assert pace.next_at("a", now) == now
        pace.take("a", now)
    assert pace.next_at("a", now) > now
