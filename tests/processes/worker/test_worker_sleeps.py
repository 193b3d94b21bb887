"""A group gives its memory back and has it again: what requests, routers and the supervisor see of it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.models.checkpoints import random_checkpoint, successor_checkpoint
from support.patience import PATIENCE_S
from support.processes import short_of_memory
from support.processes.short_of_memory import Shortage
from support.worker.worker import RouterClient, WorkerProcess, client, serving, until

from octavo.proto.v1 import engine_pb2, group_pb2, group_pb2_grpc
from octavo.worker.channel import OPTIONS

DROP, KEEP = group_pb2.SleepRequest(), group_pb2.SleepRequest(keep_kv=True)
PROMPT = [*b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"]  # three blocks and some


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "letters")


@contextlib.asynccontextmanager
async def sleeper(worker: WorkerProcess) -> AsyncIterator[group_pb2_grpc.GroupSleepStub]:
    async with grpc.aio.insecure_channel(worker.addresses["status"], options=OPTIONS) as channel:
        yield group_pb2_grpc.GroupSleepStub(channel)


async def sleep(worker: WorkerProcess, request: group_pb2.SleepRequest = DROP) -> group_pb2.SleepReply:
    async with sleeper(worker) as stub:
        return await stub.Sleep(request, timeout=PATIENCE_S)


async def wake(worker: WorkerProcess) -> group_pb2.SleepReply:
    async with sleeper(worker) as stub:
        return await stub.Wake(group_pb2.WakeRequest(), timeout=PATIENCE_S)


async def refused(call) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    return refusal.value.details()


async def answer(router: RouterClient, prompt: list[int], tokens: int):
    one = await router.submit(prompt, tokens)
    await asyncio.wait_for(one.done.wait(), PATIENCE_S)
    return one


async def test_a_group_that_slept_answers_as_before_and_says_what_it_does(model):
    async with serving(model) as worker, client(worker) as router:
        before = await answer(router, PROMPT, 8)
        slept = await sleep(worker)
        assert slept.changed and slept.moved_bytes > 0
        assert worker.get("health", "/readyz") == (200, "asleep\n")
        assert (await worker.status()).phase == group_pb2.ASLEEP
        assert worker.metric("octavo_worker_asleep") == 1 and worker.metric("octavo_worker_serving") == 0
        await until(lambda: router.credit.load.asleep)
        assert router.credit.tokens == 0
        woken = await wake(worker)
        assert woken.changed and woken.moved_bytes == slept.moved_bytes
        assert worker.get("health", "/readyz") == (200, "serving\n")
        assert worker.metric("octavo_worker_asleep") == 0
        await until(lambda: router.credit.tokens > 0 and not router.credit.load.asleep)
        after = await answer(router, PROMPT, 8)
        assert after.ids == before.ids
        assert after.cached == 0, "the KV cache was dropped, and with it what is in it"
        status = await worker.status()
        assert (status.phase, status.restarts) == (group_pb2.SERVING, 0)


async def test_a_kept_kv_cache_still_has_its_prefixes(model):
    async with serving(model) as worker, client(worker) as router:
        before = await answer(router, PROMPT, 8)
        kept = await sleep(worker, KEEP)
        dropped = await sleep(worker, DROP)
        assert kept.moved_bytes > 0 and dropped.changed and dropped.moved_bytes > 0
        await wake(worker)
        assert (await answer(router, PROMPT, 8)).cached == 0
        await sleep(worker, KEEP)
        await wake(worker)
        after = await answer(router, PROMPT, 8)
        assert (after.ids, after.cached) == (before.ids, 48)


async def test_running_requests_end_before_the_sleep_and_later_ones_are_for_another_group(model):
    async with serving(model) as worker, client(worker) as router:
        running = [await router.submit([ord("a")], 400 + n) for n in range(8)]
        await until(lambda: all(one.ids for one in running))
        assert "8 requests run" in await refused(sleep(worker, group_pb2.SleepRequest(now=True)))
        falling = asyncio.create_task(sleep(worker))
        await until(lambda: router.credit.tokens == 0)
        crossing = await router.submit([ord("a")], 3)
        slept = await falling
        assert [len(one.ids) for one in running] == [400 + n for n in range(8)]
        assert slept.waited_ms > 0 and crossing.ids == [*b"bcd"], "sent before the group was asleep: still answered"
        late = await answer(router, [ord("a")], 3)
        assert late.rejected is not None and late.rejected.code == engine_pb2.Rejected.UNAVAILABLE
        await wake(worker)
        assert (await answer(router, [ord("a")], 3)).ids == [*b"bcd"]


async def test_to_sleep_or_wake_twice_changes_nothing_and_a_wake_wins_over_a_sleep_that_waits(model):
    async with serving(model) as worker, client(worker) as router:
        assert not (await wake(worker)).changed
        running = await router.submit([ord("a")], 1500)
        await until(lambda: bool(running.ids))
        falling = asyncio.create_task(sleep(worker))
        await until(lambda: router.credit.tokens == 0)
        assert not (await wake(worker)).changed
        assert "woken before" in await refused(falling)
        await until(lambda: router.credit.tokens > 0)
        assert (await answer(router, [ord("a")], 3)).ids == [*b"bcd"]
        await until(running.done.is_set)
        both = await asyncio.gather(sleep(worker), sleep(worker))
        assert sorted(one.changed for one in both) == [False, True]
        both = await asyncio.gather(wake(worker), wake(worker))
        assert sorted(one.changed for one in both) == [False, True]
        assert (await answer(router, [ord("a")], 3)).ids == [*b"bcd"]


async def test_a_caller_that_gives_up_leaves_the_group_awake(model):
    async with serving(model) as worker, client(worker) as router:
        running = await router.submit([ord("a")], 1500)
        await until(lambda: bool(running.ids))
        falling = asyncio.create_task(sleep(worker))
        await until(lambda: router.credit.tokens == 0)
        falling.cancel()
        await until(lambda: router.credit.tokens > 0)
        assert (await answer(router, [ord("a")], 3)).ids == [*b"bcd"]


async def test_both_ranks_of_tensor_parallelism_sleep_and_an_idle_group_stays_asleep(tmp_path):
    folder = random_checkpoint(tmp_path / "random", seed=3)
    async with serving(folder, "--tensor", "2", "--threads", "1") as worker, client(worker) as router:
        before = (await answer(router, PROMPT, 12)).ids
        slept = await sleep(worker)
        steps = worker.metric("octavo_worker_steps_total")
        await until(lambda: worker.metric("octavo_worker_steps_total") >= steps + 3)  # of an idle group, each second
        woken = await wake(worker)
        assert slept.moved_bytes == woken.moved_bytes > 0
        assert (await answer(router, PROMPT, 12)).ids == before


async def test_what_one_of_two_ranks_cannot_do_is_undone_on_both_and_the_reason_reported(tmp_path):
    worker = WorkerProcess(random_checkpoint(tmp_path / "random", seed=3), "--tensor", "2", "--threads", "1")
    worker.main, shortage = partial(short_of_memory.main, str(worker.folder)), Shortage(worker.folder)
    with contextlib.closing(worker.start()):
        await worker.ready()
        async with client(worker) as router:
            ranks, before = worker.ranks(), (await answer(router, PROMPT, 12)).ids
            shortage.to_sleep.touch()
            assert "rank 1: the weights of a rank that sleeps stay in the host's memory" in await refused(sleep(worker))
            await until(lambda: worker.get("health", "/readyz") == (200, "serving\n") and router.credit.tokens > 0)
            assert (await answer(router, PROMPT, 12)).ids == before
            shortage.to_sleep.unlink()
            slept = await sleep(worker)
            shortage.to_wake.touch()
            assert "rank 1: out of memory" in await refused(wake(worker))
            assert worker.get("health", "/readyz") == (200, "asleep\n")
            shortage.to_wake.unlink()
            assert (await wake(worker)).moved_bytes == slept.moved_bytes, "neither rank had kept what it got"
            await until(lambda: router.credit.tokens > 0)
            assert (await answer(router, PROMPT, 12)).ids == before
        assert worker.ranks() == ranks


async def test_a_rank_that_dies_asleep_is_replaced_by_one_that_is_awake(model):
    async with serving(model) as worker:
        await sleep(worker)
        first = worker.children()["rank"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: worker.children().get("rank", first) != first)
        await until(lambda: worker.get("health", "/readyz") == (200, "serving\n"), PATIENCE_S, worker.text)
        async with client(worker) as router:
            assert (await answer(router, [ord("a")], 3)).ids == [*b"bcd"]


async def test_weights_that_changed_during_the_sleep_are_refused(tmp_path):
    folder = random_checkpoint(tmp_path / "random", seed=3)
    other = random_checkpoint(tmp_path / "other", seed=4)
    async with serving(folder) as worker:
        digest = (await worker.status()).model.digest
        await sleep(worker)
        for file in other.glob("*.safetensors"):
            (folder / file.name).write_bytes(file.read_bytes())  # in place
        async with sleeper(worker) as stub:
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Wake(group_pb2.WakeRequest(), timeout=PATIENCE_S)
        await until(lambda: "not the model that fell asleep" in worker.text(), PATIENCE_S, worker.text)
        await until(lambda: worker.get("health", "/readyz") == (200, "serving\n"), PATIENCE_S, worker.text)
        status = await worker.status()
        assert status.last_failure.reason == "ModelInvalid" and status.model.digest != digest
