"""The work queue's schedule, with a clock of its own."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.operator.workqueue import BURST, FIRST_BACKOFF_S, INTERVAL_S, MAX_BACKOFF_S, Schedule, WorkQueue


def test_a_key_added_twice_is_worked_on_once() -> None:
    queue = Schedule()
    queue.add("a", 0)
    queue.add("a", 0)
    assert queue.take(1) == "a"
    queue.done("a")
    assert queue.take(1) is None


def test_a_key_is_never_worked_on_twice_at_once() -> None:
    queue = Schedule()
    queue.add("a", 0)
    assert queue.take(0) == "a"
    queue.add("a", 0)
    assert queue.take(1) is None
    queue.done("a")
    assert queue.take(1) == "a"


def test_a_busy_key_does_not_hold_up_another() -> None:
    queue = Schedule()
    queue.add("a", 0)
    assert queue.take(0) == "a"
    queue.add("a", 0)
    queue.add("b", 1)
    assert queue.take(1) == "b"


def test_the_earliest_due_time_counts() -> None:
    queue = Schedule()
    queue.add("a", 60)
    queue.add("a", 5)
    queue.add("a", 30)
    assert queue.take(4) is None
    assert queue.take(5) == "a"
    queue.done("a")
    assert queue.take(100) is None


def test_what_a_user_changes_goes_before_all_that_is_only_looked_at_again() -> None:
    queue = Schedule()
    for number in range(100):
        queue.add(f"s{number}", 0)
    queue.add("s99", 5, urgent=True)
    queue.add("new", 6, urgent=True)
    assert [queue.take(6) for _ in range(3)] == ["s99", "new", "s0"]
    queue.done("s99")
    assert "s99" not in [queue.take(6) for _ in range(100)], "it is looked at once"


def test_failures_back_off_and_success_forgets_them() -> None:
    queue, delays = Schedule(), []
    queue.add("a", 0)
    now = 0.0
    for _ in range(12):
        assert queue.take(now) == "a"
        delays.append(queue.failed("a", now))
        now += delays[-1]
    assert delays[0] == FIRST_BACKOFF_S and delays[1] == 2 * FIRST_BACKOFF_S and delays[-1] == MAX_BACKOFF_S
    assert queue.take(now) == "a"
    queue.done("a")
    queue.add("a", now)
    assert queue.take(now) == "a"
    assert queue.failed("a", now) == FIRST_BACKOFF_S


def test_a_failing_key_does_not_spin_when_its_objects_change() -> None:
    queue = Schedule()
    queue.add("a", 0)
    queue.take(0)
    delay = queue.failed("a", 0)
    queue.add("a", 0)
    assert queue.take(delay / 2) is None
    assert queue.take(delay) == "a"


def test_what_the_user_changes_cuts_the_back_off_short() -> None:
    queue = Schedule()
    queue.add("a", 0)
    queue.take(0)
    queue.failed("a", 0)
    queue.add("a", 0, urgent=True)
    assert queue.take(0) == "a"


def test_what_the_user_changes_during_a_failing_look_is_looked_at_at_once() -> None:
    queue, now = Schedule(), 0.0
    queue.add("a", 0)
    for _ in range(8):
        assert queue.take(now) == "a"
        now += queue.failed("a", now)
    assert queue.take(now) == "a"
    queue.add("a", now, urgent=True)
    queue.failed("a", now + 1)
    assert queue.take(now + 1) == "a"


@given(st.lists(st.tuples(st.sampled_from("add take done fail".split()), st.sampled_from("abc"), st.integers(0, 5))))
def test_no_key_that_was_added_is_lost(steps: list[tuple[str, str, int]]) -> None:
    queue, now, taken, wanted = Schedule(), 0.0, set[str](), set[str]()
    for action, key, value in steps:
        now += value
        if action == "add":
            queue.add(key, now)
            wanted.add(key)
        elif action == "take" and (found := queue.take(now)) is not None:
            assert found not in taken and found in wanted
            taken.add(found)
            wanted.discard(found)
        elif action == "done" and key in taken:
            queue.done(key)
            taken.discard(key)
        elif action == "fail" and key in taken:
            queue.failed(key, now)
            taken.discard(key)
            wanted.add(key)
    for key in taken:
        queue.done(key)
    found_later = {queue.take(now + 10 * MAX_BACKOFF_S) for _ in range(4)} - {None}
    assert found_later == wanted


def test_a_change_that_failed_goes_first_again_after_its_back_off_and_holds_up_no_key_before() -> None:
    queue = Schedule()
    for number in range(3):
        queue.add(f"s{number}", 0)
    queue.add("changed", 1, urgent=True)
    assert queue.take(1) == "changed"
    again = 1 + queue.failed("changed", 1)
    assert queue.take(1) == "s0"
    assert [queue.take(again), queue.take(again)] == ["changed", "s1"]


def test_what_is_due_later_waits_behind_no_key_once_failures_are_forgotten() -> None:
    queue = Schedule()
    queue.add("a", 0)
    queue.take(0)
    queue.failed("a", 0)
    queue.forget_failures()
    queue.add("a", 0)
    assert queue.take(0) == "a"


async def test_each_key_wakes_one_of_the_waiting_tasks_and_at_its_time() -> None:
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add("later", 0.05)
    queue.add("now")
    await asyncio.sleep(0.01)
    assert [task.done() for task in waiting] == [True, False, False] and await waiting[0] == "now"
    assert await asyncio.wait_for(waiting[1], 5) == "later"
    queue.add("now")
    await asyncio.sleep(0.01)
    assert not waiting[2].done(), "it is being worked on"
    queue.done("now")
    assert await asyncio.wait_for(waiting[2], 5) == "now"


async def test_a_key_that_was_handed_to_a_cancelled_task_goes_to_the_next() -> None:
    queue = WorkQueue()
    gone = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("a")
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert await asyncio.wait_for(queue.take(), 5) == "a"


async def test_a_paused_queue_hands_out_nothing() -> None:
    queue = WorkQueue()
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.pause()
    queue.add("a")
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


def test_a_key_that_is_added_all_the_time_is_taken_at_a_bounded_pace_and_not_lost() -> None:
    queue, taken, now = Schedule(), list[float](), 0.0
    while now < 60.0:
        queue.add("a", now, urgent=True)
        if queue.take(now) == "a":
            taken.append(now)
            queue.done("a")
        now += 0.1
    assert BURST + 60 / INTERVAL_S - 2 <= len(taken) <= BURST + 60 / INTERVAL_S
    assert taken[:5] == [pytest.approx(0.1 * number) for number in range(5)], "the first changes do not wait"
    at = queue.next_at()
    assert at is not None and at <= now + INTERVAL_S and queue.take(at) == "a", "the last change is seen"
    queue.done("a")
    queue.add("a", now + 60)
    assert queue.take(now + 60) == "a"
