"""One timer rings at the earliest of many moments, on the loop that runs in production."""

import asyncio
import math

import uvloop
from support.patience import PATIENCE_S

from octavo.router.dispatch.deadline_timer import DeadlineTimer


class Bell:
    def __init__(self) -> None:
        self.timer = DeadlineTimer(self.ring)
        self.rings = 0
        self.rung = asyncio.Event()

    def ring(self) -> None:
        self.rings += 1
        self.rung.set()

    async def heard(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.rung.wait()
        self.rung.clear()


async def test_units_of_the_router_run_on_the_loop_that_routers_run_on() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


async def test_a_moment_that_has_passed_may_be_followed_by_any_other_in_the_same_turn() -> None:
    bell, now = Bell(), asyncio.get_running_loop().time()
    for moment in (now - 1, now + 0.0001, now + 5, now - 2, math.inf):
        bell.timer.set(moment)
    await bell.heard()
    assert bell.rings == 1


async def test_an_earlier_moment_takes_the_place_of_a_later_one_and_a_later_one_changes_nothing() -> None:
    bell, now = Bell(), asyncio.get_running_loop().time()
    for moment in (now + 1e6, now + 0.01, now + 1e6, math.inf):
        bell.timer.set(moment)
    await bell.heard()
    bell.timer.set(now + 0.02)
    await bell.heard()
    assert bell.rings == 2


async def test_an_alarm_that_is_off_does_not_ring_and_can_be_set_again() -> None:
    bell, now = Bell(), asyncio.get_running_loop().time()
    bell.timer.set(now)
    bell.timer.cancel()
    await asyncio.sleep(0.01)
    assert bell.rings == 0
    bell.timer.set(now)
    await bell.heard()
