"""A worker that gets SIGTERM cuts no stream, and a router that misbehaves disturbs no other."""

import asyncio
import os
import random
import signal

import grpc
import grpc.aio
import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.worker.worker import RouterClient, WorkerProcess, client, serving, until

from octavo.proto.v1 import engine_pb2
from octavo.worker.channel import OPTIONS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "letters")


@pytest.fixture(scope="module")
def lasting(model):
    """A worker for the tests that leave it as it was."""
    worker = WorkerProcess(model).start()
    try:
        asyncio.run(worker.ready())
        yield worker
    finally:
        worker.close()


async def test_sigterm_under_streams_cuts_none_refuses_new_work_and_exits_0(model):
    async with serving(model) as worker, client(worker) as router:
        answers = [await router.submit([ord("a")], 600 + 10 * n) for n in range(10)]
        await until(lambda: all(answer.ids for answer in answers))
        worker.signal(signal.SIGTERM)
        await until(router.draining.is_set, PATIENCE_S, worker.text)
        assert worker.get("health", "/readyz")[0] == 503
        late = await router.submit([1], 5)
        await asyncio.wait_for(late.done.wait(), PATIENCE_S)
        assert late.rejected is not None
        assert late.rejected.code == engine_pb2.Rejected.UNAVAILABLE
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        for n, answer in enumerate(answers):
            assert answer.finish == engine_pb2.LENGTH
            assert len(answer.ids) == 600 + 10 * n
        assert await worker.exit_code() == 0
        assert not worker.children()


async def test_a_group_that_breaks_while_it_drains_says_so_and_exits_1(model):
    async with serving(model) as worker, client(worker) as router:
        answers = [await router.submit([ord("a")], 1900) for _ in range(8)]
        await until(lambda: all(answer.ids for answer in answers))
        worker.signal(signal.SIGTERM)
        await until(router.draining.is_set, PATIENCE_S, worker.text)
        os.kill(worker.children()["rank"], signal.SIGKILL)
        assert await worker.exit_code() == 1
        assert "RankExited" in worker.text() and "requests are lost" in worker.text()
        assert not worker.children()


async def test_a_drain_ends_5_s_before_the_grace_period_does(model):
    async with serving(model, "--grace-period", "7") as worker, client(worker) as router:
        answers = [await router.submit([ord("a")], 2000) for _ in range(32)]
        await until(lambda: all(answer.ids for answer in answers))
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code(7) == 0
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        assert any(answer.lost for answer in answers), "there was more to say than the grace period allows"


async def test_sigterm_while_loading_exits_0_at_once(model):
    worker = WorkerProcess(model).start()
    try:
        await until(lambda: worker.get("health", "/livez")[0] == 200, PATIENCE_S, worker.text)
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code(10) == 0
    finally:
        worker.close()


async def test_a_router_that_stops_reading_is_cut_and_others_go_on(lasting):
    worker = lasting
    small_window = (*OPTIONS, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))
    address = worker.addresses["serve"]
    deaf = await RouterClient(address, channel=grpc.aio.insecure_channel(address, options=small_window)).open(False)
    for _ in range(15):
        await deaf.submit([ord("a")], 500)
    async with client(worker) as router:
        answer = await router.submit([ord("a")], 200)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
        assert len(answer.ids) == 200
    await until(lambda: "is cut off" in worker.log.read_text())
    await until(lambda: worker.metric("octavo_worker_requests_running") == 0)
    assert worker.metric("octavo_worker_restarts_total") == 0
    await deaf.close()


@pytest.mark.parametrize(
    ("count", "flags"), [(2000, ()), (600, ("--no-prefix-caching",))], ids=["2000", "600 without prefix caching"]
)
async def test_blocks_return_when_a_third_of_many_requests_vanish(model, count, flags):
    rng = random.Random(7)
    async with serving(model, *flags) as worker, client(worker) as router:
        idle = worker.metric("octavo_worker_kv_blocks_used")
        turns = asyncio.Semaphore(32)

        async def one(index: int) -> None:
            async with turns:
                prompt = [rng.randrange(97, 122) for _ in range(rng.randrange(1, 64))]
                vanishes = index % 3 == 0
                answer = await router.submit(prompt, 400 if vanishes else rng.randrange(1, 8))
                if vanishes:
                    await asyncio.sleep(rng.random() * 0.2)
                    await router.cancel(next(n for n, other in router.answers.items() if other is answer))
                else:
                    await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
                    assert answer.finish == engine_pb2.LENGTH

        await asyncio.gather(*(one(index) for index in range(count)))
        await until(lambda: worker.metric("octavo_worker_kv_blocks_used") == idle)
        assert worker.metric("octavo_worker_requests_cancelled_total") > count // 4
        assert worker.metric("octavo_worker_requests_waiting") == 0


async def test_a_cancelled_request_stops_within_a_few_steps(lasting):
    worker = lasting
    before = worker.metric("octavo_worker_generated_tokens_total")
    async with client(worker) as router:
        answer = await router.submit([ord("a")], 2000)
        await until(lambda: len(answer.ids) > 5)
        await router.cancel(1)
        await until(lambda: worker.metric("octavo_worker_requests_running") == 0)
        generated = worker.metric("octavo_worker_generated_tokens_total")
        assert generated - before < 2000
        await asyncio.sleep(1)
        assert worker.metric("octavo_worker_generated_tokens_total") == generated


async def test_a_stream_that_ends_takes_its_requests_with_it(lasting):
    worker = lasting
    before = worker.metric("octavo_worker_requests_cancelled_total")
    async with client(worker) as router:
        answers = [await router.submit([ord("a")], 2000) for _ in range(8)]
        await until(lambda: all(answer.ids for answer in answers))
    await until(lambda: worker.metric("octavo_worker_requests_running") == 0)
    assert worker.metric("octavo_worker_requests_cancelled_total") - before == 8
