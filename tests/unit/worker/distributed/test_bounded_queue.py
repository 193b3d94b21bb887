"""Between a stream's thread and the rank's: in order, bounded, and nobody waits at a broken one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from octavo.worker.distributed.pipeline.bounded_queue import Passage
from octavo.worker.errors import PeerLost


def aside(work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work, *arguments)
    finally:
        pool.shutdown(wait=False)


def test_items_come_in_order_and_no_more_than_there_is_room_for_wait() -> None:
    passage: Passage[int] = Passage(2)
    passage.put(1)
    passage.put(2)
    third = aside(passage.put, 3)
    with pytest.raises(TimeoutError):
        third.result(0.1)
    assert passage.get() == 1
    third.result(5)
    assert (passage.get(), passage.get()) == (2, 3)


@pytest.mark.parametrize("call", ["get", "opened"])
def test_who_waits_hears_that_it_broke(call: str) -> None:
    passage: Passage[int] = Passage(1)
    waiting = aside(getattr(passage, call))
    passage.break_("rank 1: gone")
    passage.break_("later")
    with pytest.raises(PeerLost, match="rank 1: gone"):
        waiting.result(5)


def test_who_waits_for_room_hears_that_it_broke() -> None:
    passage: Passage[int] = Passage(1)
    passage.put(1)
    waiting = aside(passage.put, 2)
    passage.break_("gone")
    with pytest.raises(PeerLost):
        waiting.result(5)


def test_what_came_before_the_break_is_still_got() -> None:
    passage: Passage[int] = Passage(1)
    passage.put(1)
    passage.break_("gone")
    assert passage.get() == 1
    with pytest.raises(PeerLost):
        passage.get()
