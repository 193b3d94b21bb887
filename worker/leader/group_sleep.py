"""Sleep and wake of the group, as the leader's supervisor asks for them.

    awake --sleep--> closed: no credit, running requests end --> asleep: the core has ordered it
      ^-----wake----------'                                        |
      '------------------------------wake--------------------------'

While it is closed or asleep routers have no credit, so requests wait in them. What a router has sent before it knew is
run before the group falls asleep, and refused after that: another group takes it, or this one once it is awake.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from octavo.worker.errors import CannotSleep, CannotWake
from octavo.worker.leader.request_registry import RequestRegistry
from octavo.worker.messages.memory import MemoryState, Sleep, Wake

_LOOK_S = 0.002  # how often is looked whether requests still run


@dataclass(frozen=True, slots=True)
class Moved:
    """changed: False where it was so before. bytes: given back or taken. waited_s: for requests; took_s: since then."""

    changed: bool = False
    bytes: int = 0
    waited_s: float = 0.0
    took_s: float = 0.0


class GroupSleep:
    def __init__(self, registry: RequestRegistry, changed: Callable[[], None]) -> None:
        """changed: called when the group has fallen asleep, could not, or has woken."""
        self._registry = registry
        self._changed = changed
        self._one = asyncio.Lock()
        self._waking = 0  # calls of `wake` that have not returned
        self._keeps_kv = False  # asleep, with its KV cache

    async def sleep(self, keep_kv: bool, now: bool) -> Moved:
        """Raises CannotSleep: the group goes on as before."""
        registry, begun = self._registry, time.monotonic()
        if not registry.ready.is_set() or registry.draining:
            raise CannotSleep("the group does not serve")
        if now:
            self._refuse_to_wait()  # nor for a sleep that waits
        await self._one.acquire()
        try:
            was_asleep = registry.asleep
            if was_asleep and (keep_kv or not self._keeps_kv):
                self._one.release()
                return Moved()
            if not was_asleep:
                if now:
                    self._refuse_to_wait()  # for what came meanwhile
                await self._until_idle()
        except BaseException:
            self._one.release()
            raise
        return await self._to_its_end(self._fall_asleep(keep_kv, begun, was_asleep))

    async def wake(self) -> Moved:
        """Raises CannotWake: the group stays asleep."""
        self._waking += 1
        try:
            await self._one.acquire()
            return await self._to_its_end(self._wake())
        finally:
            self._waking -= 1

    async def _to_its_end(self, moving: Coroutine[Any, Any, Moved]) -> Moved:
        """What the core has been asked for ends as asked, also when the caller goes; the next one waits for that."""
        task = asyncio.create_task(moving)
        task.add_done_callback(lambda _: self._one.release())
        return await asyncio.shield(task)

    def _refuse_to_wait(self) -> None:
        if running := self._registry.under_way:
            raise CannotSleep(f"{running} requests run; wait for their end by leaving out --now")

    async def _until_idle(self) -> None:
        """Until no request runs; from then on new ones are refused."""
        registry = self._registry
        registry.close_to_requests(True)
        try:
            while registry.under_way:
                if self._waking:
                    raise CannotSleep("the group was woken before its requests had ended")
                if registry.draining:
                    raise CannotSleep("the group drains")
                await asyncio.sleep(_LOOK_S)
        except BaseException:  # the caller may have gone
            registry.close_to_requests(False)
            raise
        registry.asleep = True  # now, since a request may be next in this turn of the loop, and the order is later

    async def _fall_asleep(self, keep_kv: bool, begun: float, was_asleep: bool) -> Moved:
        registry, idle = self._registry, time.monotonic()
        state = await registry.order(Sleep(keep_kv))
        if state.error:
            registry.asleep = was_asleep
            registry.close_to_requests(was_asleep)
            self._changed()
            raise CannotSleep(state.error)
        self._keeps_kv = keep_kv
        self._changed()
        return Moved(True, state.moved_bytes, idle - begun, time.monotonic() - idle)

    async def _wake(self) -> Moved:
        registry, begun = self._registry, time.monotonic()
        if not registry.asleep:
            return Moved()
        state: MemoryState = await registry.order(Wake())
        if state.error:
            raise CannotWake(state.error)
        registry.asleep = False
        registry.close_to_requests(False)
        self._changed()
        return Moved(True, state.moved_bytes, 0.0, time.monotonic() - begun)
