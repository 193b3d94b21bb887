"""What runs in the background of a router goes on after any error, and says so in the log."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Any

import pytest
from support.router.helpers import REFUSAL, ScriptedHelpers

from octavo.router.background import background
from octavo.router.jobs.generation import Model, RequestError
from octavo.router.process import process_manager as families
from octavo.router.process.process_manager import ProcessManager
from octavo.router.tokenizer_pool import pool as pools
from octavo.router.tokenizer_pool.pool import HelperPool

MODEL = Model("digest", {})


@pytest.mark.parametrize("odd", [ValueError("not JSON"), ({"ask": {}, "sizes": []}, b""), ({}, b"")])
async def test_a_helper_that_talks_nonsense_is_replaced_and_its_request_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, odd: Any
) -> None:
    helpers = ScriptedHelpers([odd, (REFUSAL, b"")])
    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    monkeypatch.setattr(pools, "BACKOFF_S", (0.01, 0.01))
    pool = HelperPool(MODEL, 1)
    with pytest.raises(RequestError) as caught:
        await asyncio.wait_for(pool.prepare("chat", b"{}", 16), 2)
    assert caught.value.status == 500
    with pytest.raises(RequestError) as caught:
        await asyncio.wait_for(pool.prepare("chat", b"{}", 16), 2)
    assert caught.value.status == 400 and helpers.started == 2 and pool.counts.died == 1
    assert any(record.levelno >= logging.ERROR for record in caplog.records)
    await pool.close()


class Child:
    """Stands for a router process that cannot be made at first."""

    def __init__(self, failures: Sequence[Exception]) -> None:
        self.index = 0
        self.failures = list(failures)
        self.signals: list[int] = []
        self.running = asyncio.Event()
        self.over = asyncio.Event()

    async def start(self, argv: Sequence[str]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.over.clear()
        self.running.set()

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        self.over.set()

    async def ask(self) -> bytes:
        return b"no metrics\n"

    owes = False

    def verdict(self) -> str | None:
        return None

    async def ended(self) -> tuple[int, bytes]:
        await self.over.wait()
        return 0, b""


async def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(families, "BACKOFF_S", (0.01, 0.01))
    manager, child = (
        ProcessManager([], 0),
        Child([OSError(11, "Resource temporarily unavailable"), RuntimeError("a bug")]),
    )
    manager._children = [child]  # type: ignore[list-item]
    stop, hurry = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(manager.run(stop, hurry, 5.0))
    async with asyncio.timeout(2):
        await child.running.wait()
    assert "Resource temporarily unavailable" in caplog.text and "a bug" in caplog.text
    assert b"octavo_router_process_restarts_total 2.0" in await manager.metrics()
    stop.set()
    await asyncio.wait_for(running, 2)


class SlowChild(Child):
    """Takes its time to be made, and hears nothing before it is."""

    def __init__(self) -> None:
        super().__init__(())
        self.begun = asyncio.Event()

    async def start(self, argv: Sequence[str]) -> None:
        self.begun.set()
        await asyncio.sleep(0.1)
        await super().start(argv)

    def signal(self, number: signal.Signals) -> None:
        if self.running.is_set():
            super().signal(number)


async def test_a_stop_reaches_a_process_that_is_being_made() -> None:
    manager, child = ProcessManager([], 0), SlowChild()
    manager._children = [child]  # type: ignore[list-item]
    stop, hurry = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(manager.run(stop, hurry, 5.0))
    await child.begun.wait()
    stop.set()
    await asyncio.wait_for(running, 2)
    assert child.signals[0] == signal.SIGTERM


async def test_a_task_that_dies_is_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def dies() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        await background(dies(), "the follower")
    await asyncio.sleep(0)
    assert "the follower" in caplog.text and "KeyError" in caplog.text
    caplog.clear()
    task = background(asyncio.sleep(9), "another")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert caplog.text == ""
