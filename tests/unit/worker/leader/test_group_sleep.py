"""A group is put to sleep and woken: what requests and callers that come or go at any moment do to it."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.patience import PATIENCE_S

from octavo.proto.v1 import engine_pb2
from octavo.worker.config import Config
from octavo.worker.errors import CannotSleep
from octavo.worker.ipc.process_context import create_shared
from octavo.worker.ipc.ring import RingReader, RingWriter
from octavo.worker.leader.group_sleep import GroupSleep
from octavo.worker.leader.request_registry import RequestRegistry
from octavo.worker.leader.router_stream import RouterStream
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.memory import GROUP, MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.request import NewRequest

SAID = RankCapabilities(100, 16, 512, 1024, 512, 8, [], "cpu", [])


class Leader:
    """The leader's requests with one stream; this test is the core at the other end of the rings."""

    def __init__(self) -> None:
        shared = create_shared(1)
        self._fds = (shared.inbox.space, shared.outbox.data)
        self._records, self._answers = RingReader(shared.inbox), RingWriter(shared.outbox)
        self.heard: list[Any] = []  # of the core, so far
        self.registry = RequestRegistry(Config("m", "m", *["unix:/absent"] * 5), shared, ())
        self.group = GroupSleep(self.registry, lambda: None)
        self.stream = RouterStream("router")

    async def start(self) -> None:
        self.registry.start()
        self._answers.push(rank_info.dump(SAID))
        await asyncio.wait_for(self.registry.ready.wait(), PATIENCE_S)
        self.registry.open(self.stream)

    def close(self) -> None:
        for fd in self._fds:
            asyncio.get_running_loop().remove_reader(fd)

    def asks(self, keep_kv: bool = False, now: bool = False) -> asyncio.Task[Any]:
        return asyncio.create_task(self.group.sleep(keep_kv, now))

    async def take(self, **message: Any) -> None:
        await self.registry.take(self.stream, engine_pb2.FromRouter(**message))

    async def until(self, kind: type) -> None:
        """The core hears such a message."""
        await _until(lambda: kind in map(type, self._hear()))

    def moved(self, asleep: bool) -> None:
        """The core says that all ranks did as they should."""
        self._answers.push(encode(MemoryState(GROUP, asleep, 100)))

    def _hear(self) -> list[Any]:
        while (record := self._records.pop()) is not None:
            self.heard.append(decode(record))
        return self.heard


def submit(number: int) -> engine_pb2.Submit:
    return engine_pb2.Submit(number=number, prompt=array("I", [1, 2]).tobytes(), limits=engine_pb2.Limits(max_tokens=4))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    leader = Leader()
    await leader.start()
    yield leader
    leader.close()


async def test_a_request_of_the_same_turn_of_the_loop_is_refused(leader: Leader) -> None:
    falling = leader.asks()
    coming = asyncio.create_task(leader.take(submit=submit(1)))
    await leader.until(Sleep)
    await coming
    assert [type(one) for one in leader.heard] == [Sleep], "the core has no request that it cannot run"
    refused = leader.stream.out.take(engine_pb2.Credit()).rejected
    assert (refused.number, refused.code) == (1, engine_pb2.Rejected.UNAVAILABLE)
    leader.moved(asleep=True)
    assert (await falling).changed


@pytest.mark.parametrize("second", ["sleep", "wake"])
async def test_an_order_whose_caller_goes_still_ends_before_the_next(leader: Leader, second: str) -> None:
    falling = leader.asks()
    await leader.until(Sleep)
    falling.cancel()
    await asyncio.wait({falling})
    following = leader.asks() if second == "sleep" else asyncio.create_task(leader.group.wake())
    _, early = await asyncio.wait({following}, timeout=0.05)
    assert early, "the ranks have not fallen asleep"
    leader.moved(asleep=True)
    if second == "wake":
        await leader.until(Wake)
        leader.moved(asleep=False)
    assert (await asyncio.wait_for(following, PATIENCE_S)).changed is (second == "wake")


async def test_a_wake_whose_caller_goes_still_ends_before_the_next(leader: Leader) -> None:
    falling = leader.asks()
    await leader.until(Sleep)
    leader.moved(asleep=True)
    await falling
    waking = asyncio.create_task(leader.group.wake())
    await leader.until(Wake)
    waking.cancel()
    falling = leader.asks()
    leader.heard.clear()
    leader.moved(asleep=False)
    await leader.until(Sleep)
    leader.moved(asleep=True)
    assert (await asyncio.wait_for(falling, PATIENCE_S)).changed


async def test_a_sleep_that_may_not_wait_does_not_wait_for_what_came_during_another_order(leader: Leader) -> None:
    waking = asyncio.create_task(leader.group.wake())  # it has the lock, for a turn
    at_once = leader.asks(now=True)
    coming = asyncio.create_task(leader.take(submit=submit(1)))
    with pytest.raises(CannotSleep, match="1 requests run"):
        await asyncio.wait_for(at_once, PATIENCE_S)
    await asyncio.gather(waking, coming)
    await leader.until(NewRequest)
    await leader.take(cancel=engine_pb2.Cancel(number=1))
    await leader.until(Cancel)
    falling = leader.asks(now=True)
    await leader.until(Sleep)
    leader.moved(asleep=True)
    assert (await falling).changed
