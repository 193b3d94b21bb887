"""A process of a local service that ends is started again, even where the machine cannot do so at once."""

import asyncio

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
