"""A model is replaced by a fine-tune of the same layout, with real workers: both answer meanwhile, and neither passes
for the other."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.worker.worker import WorkerProcess

from octavo.worker.models.folder.checkpoint import inspect

PROMPT = {"model": "m", "prompt": "x", "max_tokens": 3, "temperature": 0}
CLIENTS = 4


async def ask(router: RunningRouter, seen: Counter[str]) -> None:
    """Count answers, for ever; an error is counted by its status and code."""
    while True:
        status, answer = await router.post("/v1/completions", PROMPT)
        seen[answer["choices"][0]["text"] if status == 200 else f"{status} {answer['error']['code']}"] += 1


async def test_two_fine_tunes_of_one_layout_answer_side_by_side_and_none_passes_for_the_other(tmp_path: Path) -> None:
    folders = [successor_checkpoint(tmp_path / name, ["x", *name]) for name in ("abc", "dog")]
    assert inspect(folders[0]).outline == inspect(folders[1]).outline
    old, new, other = (
        WorkerProcess(folder, "--served-name", "m", "--revision", revision)
        for folder, revision in zip((*folders, folders[1]), ("one", "two", "two"), strict=True)
    )
    seen = Counter[str]()
    clients: list[asyncio.Task[None]] = []
    try:
        old.start()
        async with routing([one.addresses["serve"] for one in (old, new)]) as router:
            clients = [asyncio.create_task(ask(router, seen)) for _ in range(CLIENTS)]
            await until(lambda: seen["abc"] > 5)
            for worker in (new.start(), other.start()):
                await worker.ready()
            await until(lambda: seen["dog"] > 5)
            digests = [(await worker.status()).model.digest for worker in (old, new, other)]
            assert digests[0] != digests[1] == digests[2] and all(len(digest) == 32 for digest in digests)
            assert digests[0] in old.text() and digests[1] in new.text()
            old.signal(signal.SIGTERM)
            assert await old.exit_code(PATIENCE_S) == 0
            before = seen["dog"]
            await until(lambda: seen["dog"] > before + 5)
        assert set(seen) == {"abc", "dog"}, seen
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for worker in (old, new, other):
            worker.close()
