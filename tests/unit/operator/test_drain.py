"""A stop waits for what is under way, and says whether it ended: only then may the Lease be given away."""

import asyncio
from typing import cast

import pytest

from octavo.operator import controller
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.lease import Lease
from octavo.operator.controller import Controller
from octavo.operator.metrics import Metrics
from octavo.operator.workqueue import WorkQueue


class _Nothing:
    """Caches that hold nothing; a Lease that is held."""

    def __init__(self) -> None:
        self.gained, self.lost = asyncio.Event(), asyncio.Event()
        self.gained.set()

    async def wait_synced(self) -> None: ...

    def services(self) -> list[object]:
        return []

    def get(self, *_: str) -> None:
        return None


@pytest.mark.parametrize(("work_s", "is_done"), [(0.05, True), (60.0, False)])
async def test_a_drain_says_whether_the_work_ended(
    monkeypatch: pytest.MonkeyPatch, work_s: float, is_done: bool
) -> None:
    monkeypatch.setattr(controller, "DRAIN_S", 0.5)
    started = asyncio.Event()

    async def reconcile(_key: str) -> float | None:
        started.set()
        await asyncio.sleep(work_s)
        return None

    queue, nothing = WorkQueue(), _Nothing()
    queue.add("ns/chat")
    works = Controller(queue, cast(Lease, nothing), cast(Caches, nothing), reconcile, Metrics())
    task = asyncio.create_task(works.run())
    await asyncio.wait_for(started.wait(), 5)
    assert await works.drain() is is_done
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
