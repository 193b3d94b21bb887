"""A group of several pods sleeps and wakes as one."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.models.checkpoints import random_checkpoint
from support.patience import PATIENCE_S
from support.worker.group import group
from support.worker.worker import WorkerProcess, client, until

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.channel import OPTIONS

PROMPTS = [list(range(3 + i, 40 + 3 * i)) for i in range(4)]


async def _texts(worker: WorkerProcess) -> list[list[int]]:
    async with client(worker) as router:
        answers = [await router.submit(prompt, 16) for prompt in PROMPTS]
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        return [answer.ids for answer in answers]


async def test_pods_with_a_stage_each_give_back_what_they_take_again_and_the_other_pod_only_follows(
    tmp_path: Path,
) -> None:
    async with group(random_checkpoint(tmp_path / "random"), 2, 2, 1) as one:
        before = await _texts(one.leader)
        channels = [grpc.aio.insecure_channel(pod.addresses["status"], options=OPTIONS) for pod in one.pods]
        leader, follower = (group_pb2_grpc.GroupSleepStub(channel) for channel in channels[:2])
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await follower.Sleep(group_pb2.SleepRequest(), timeout=PATIENCE_S)
        assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "group-0-1 does not lead its group" in (refusal.value.details() or "")
        for _ in range(2):
            slept = await leader.Sleep(group_pb2.SleepRequest(), timeout=PATIENCE_S)
            await until(lambda: all(pod.get("health", "/readyz") == (200, "asleep\n") for pod in one.pods))
            woken = await leader.Wake(group_pb2.WakeRequest(), timeout=PATIENCE_S)
            assert slept.moved_bytes == woken.moved_bytes > 0
            await until(lambda: all(pod.get("health", "/readyz") == (200, "serving\n") for pod in one.pods))
            assert await _texts(one.leader) == before
        assert (await one.leader.status()).restarts == 0
        for channel in channels:
            await channel.close()
