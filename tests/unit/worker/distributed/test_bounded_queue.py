"""Between a stream's thread and the rank's: in order, bounded, and no thread waits at a broken one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from octavo.worker.distributed.pipeline.bounded_queue import BoundedQueue
from octavo.worker.errors import PeerLost


def aside(work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work, *arguments)
    finally:
        pool.shutdown(wait=False)


def test_items_come_in_order_and_no_more_than_there_is_room_for_wait() -> None:
    queue: BoundedQueue[int] = BoundedQueue(2)
    queue.put(1)
    queue.put(2)
    third = aside(queue.put, 3)
    with pytest.raises(TimeoutError):
        third.result(0.1)
    assert queue.get() == 1
    third.result(5)
    assert (queue.get(), queue.get()) == (2, 3)


@pytest.mark.parametrize("call", ["get", "opened"])
def test_a_waiting_reader_hears_that_it_broke(call: str) -> None:
    queue: BoundedQueue[int] = BoundedQueue(1)
    waiting = aside(getattr(queue, call))
    queue.break_("rank 1: gone")
    queue.break_("later")
    with pytest.raises(PeerLost, match="rank 1: gone"):
        waiting.result(5)


def test_a_writer_that_waits_for_room_hears_that_it_broke() -> None:
    queue: BoundedQueue[int] = BoundedQueue(1)
    queue.put(1)
    waiting = aside(queue.put, 2)
    queue.break_("gone")
    with pytest.raises(PeerLost):
        waiting.result(5)


def test_what_came_before_the_break_is_still_got() -> None:
    queue: BoundedQueue[int] = BoundedQueue(1)
    queue.put(1)
    queue.break_("gone")
    assert queue.get() == 1
    with pytest.raises(PeerLost):
        queue.get()
