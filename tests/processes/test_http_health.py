"""Health tells the truth about the engine: a router without a group that answers is not ready, but lives."""

import asyncio
from pathlib import Path

import pytest
from support.fake_leader import FakeLeader, Script, start
from support.fronts import TOKENIZER
from support.routers import RunningRouter, routing
from support.vocabularies import files, write

pytestmark = pytest.mark.timeout(120)
PATHS = ("/readyz", "/health", "/livez", "/routerz")
READY, NOT_READY = [200, 200, 200, 200], [503, 503, 200, 200]


async def until_seen(router: RunningRouter, wish: list[int], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while [await router.status(path) for path in PATHS] != wish:
            await asyncio.sleep(0.1)


async def test_readiness_ends_with_a_dead_or_a_silent_engine_and_comes_back(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/leader.sock"
    script = Script(tokenizer=write(tmp_path / "model", files(TOKENIZER)), served_name="m")
    leader = FakeLeader(script)
    server = await start(leader, address)
    async with routing([address]) as router:
        await until_seen(router, READY, 20)
        await server.stop(0)  # as kill -9
        await until_seen(router, NOT_READY, 20)
        leader = FakeLeader(script)
        server = await start(leader, address)
        await until_seen(router, READY, 20)
        leader.silent = True  # as kill -STOP: connected, and dumb
        await until_seen(router, NOT_READY, 25)
        leader.silent = False
        await until_seen(router, READY, 20)
    await server.stop(0)
