"""A group of GPUs starts and ends as one: a killed rank takes the other with it, and both come again."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import successor_checkpoint
from support.worker.worker import Answer, RouterClient, WorkerProcess, client, until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(150),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs"),
]
AGAIN_S = 60.0  # to serve again; PyTorch's import and CUDA's start are most of it


def test_a_rank_killed_while_it_decodes_ends_the_incarnation_and_the_next_one_serves(tmp_path: Path) -> None:
    worker = WorkerProcess(successor_checkpoint(tmp_path / "letters"), "--tensor", "2", "--device", "cuda").start()
    try:
        asyncio.run(_kill_and_serve_again(worker))
    finally:
        worker.close()


async def _kill_and_serve_again(worker: WorkerProcess) -> None:
    await worker.ready(AGAIN_S)
    async with client(worker) as router:
        assert (await _answer(router, 5)).ids == [*b"bcdef"]
        cut = await router.submit([ord("a")], 1500)
        await until(lambda: len(cut.ids) > 20, 20)
        before = worker.ranks()
        began = time.monotonic()
        os.kill(before[1], signal.SIGKILL)
        await until(lambda: not set(before) & set(worker.ranks()), 5, worker.text)
        await asyncio.wait_for(cut.done.wait(), 20)
    right = [ord("a") + (1 + place) % 26 for place in range(len(cut.ids))]
    assert cut.lost and cut.ids == right
    await until(lambda: worker.get("health", "/readyz")[0] == 200 and len(worker.ranks()) == 2, AGAIN_S, worker.text)
    async with client(worker) as router:
        assert (await _answer(router, 5)).ids == [*b"bcdef"]
    print(f"serving again {time.monotonic() - began:.1f} s after the kill")
    status = await worker.status()
    assert status.restarts == 1, status


async def _answer(router: RouterClient, tokens: int) -> Answer:
    answer = await router.submit([ord("a")], tokens)
    await asyncio.wait_for(answer.done.wait(), 30)
    return answer
