"""Health tells the truth about the engine: a router without a group that answers is not ready, but live."""

import asyncio
import signal
from pathlib import Path

from support.patience import PATIENCE_S
from support.router.fronts import TOKENIZER
from support.router.leader_process import LeaderProcess
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import files, write

PATHS = ("/readyz", "/health", "/livez", "/routerz")
READY, NOT_READY = [200, 200, 200, 200], [503, 503, 200, 200]


async def until_seen(router: RunningRouter, wanted: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while [await router.status(path) for path in PATHS] != wanted:
            await asyncio.sleep(0.1)


async def test_readiness_ends_with_a_dead_or_a_silent_engine_and_comes_back(tmp_path: Path) -> None:
    model = write(tmp_path / "model", files(TOKENIZER))
    async with LeaderProcess(f"unix:{tmp_path}/leader.sock", "--tokenizer", str(model)) as leader:
        async with routing([leader.address]) as router:
            await until_seen(router, READY)
            await leader.kill()
            await until_seen(router, NOT_READY)
            await leader.start()
            await until_seen(router, READY)
            leader.signal(signal.SIGSTOP)  # connected, and dumb
            await until_seen(router, NOT_READY)
            leader.signal(signal.SIGCONT)
            await until_seen(router, READY)
