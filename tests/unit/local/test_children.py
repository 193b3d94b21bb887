"""A process of a local service that ends is started again, even where the machine cannot do so at once."""

import asyncio
import signal

import pytest

from octavo.local import children
from octavo.local.children import Child


async def test_a_process_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "BACKOFF_FIRST_S", 0.01)
    make, made = asyncio.create_subprocess_exec, 0
    again = asyncio.Event()

    async def scarce(*arguments: str, **more: object) -> asyncio.subprocess.Process:
        nonlocal made
        made += 1
        if made == 2:
            raise OSError(11, "Resource temporarily unavailable")
        if made == 3:
            again.set()
            return await make("sleep", "60")
        return await make("false")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
    said: list[str] = []
    child = Child("group 0", [], said.append)
    await child.start()
    await asyncio.wait_for(again.wait(), 5)
    await child.stop(5)
    assert any("Resource temporarily unavailable" in text for text in said), said


async def test_a_process_that_is_being_made_when_it_must_end_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "BACKOFF_FIRST_S", 0.01)
    make, made = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()
    being_made, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: str, **more: object) -> asyncio.subprocess.Process:
        if made:
            being_made.set()
            await go_on.wait()
        made.append(await make(*(("sleep", "60") if made else ("false",))))
        return made[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    child = Child("group 0", [], lambda text: None)
    await child.start()
    await being_made.wait()
    stopping = asyncio.create_task(child.stop(30))
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.wait_for(stopping, 10) == -signal.SIGTERM
    assert made[-1].returncode == -signal.SIGTERM
