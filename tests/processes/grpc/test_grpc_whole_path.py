"""A generated gRPC client, a real router and a real worker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.models.checkpoints import successor_checkpoint
from support.router.grpc_calls import calling, joined, message_of, streamed
from support.router.routers import RunningRouter, routing
from support.worker.worker import WorkerProcess, until

from octavo.proto.v1 import octavo_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def expected(tokens: int) -> str:
    """What follows "a": the alphabet, round and round."""
    return "".join(ALPHABET[(at + 1) % 26] for at in range(tokens))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RunningRouter, WorkerProcess]]:
    model: Path = successor_checkpoint(tmp_path_factory.mktemp("model") / "m")
    worker = WorkerProcess(model, "--served-name", "m").start()
    try:
        async with routing([worker.addresses["serve"]], "--served-name", "m") as router:
            yield router, worker
    finally:
        worker.close()


async def test_answers_are_the_models_streamed_and_not(pair: tuple[RunningRouter, WorkerProcess]) -> None:
    router, _ = pair
    request = message_of({"model": "m", "prompt": "a", "temperature": 0, "max_tokens": 100})
    async with calling(router.grpc) as stub:
        whole = await stub.Generate(request)
        streams = await asyncio.gather(*(streamed(stub, request) for _ in range(20)))
    assert whole.outputs[0].text == expected(100)
    assert bytes(whole.outputs[0].token_ids).decode() == expected(100)
    assert whole.outputs[0].finish_reason == octavo_pb2.FINISH_REASON_LENGTH
    for chunks in streams:
        answer = joined(chunks)
        assert answer.outputs == whole.outputs and answer.usage.completion_tokens == 100


async def test_a_prompt_that_was_there_before_is_counted_as_cached(pair: tuple[RunningRouter, WorkerProcess]) -> None:
    router, _ = pair
    request = message_of({"prompt": "xyz" * 30, "temperature": 0, "max_tokens": 2})
    async with calling(router.grpc) as stub:
        first, second = await stub.Generate(request), await stub.Generate(request)
    assert first.usage.cached_tokens == 0 and second.usage.cached_tokens >= 64
    assert second.usage.prompt_tokens == 90


async def test_clients_that_cancel_leave_nothing_behind(pair: tuple[RunningRouter, WorkerProcess]) -> None:
    router, worker = pair
    idle = worker.metric("octavo_worker_kv_blocks_used")
    async with calling(router.grpc) as stub:
        request = message_of({"prompt": ["a" * 20, "b" * 40], "temperature": 0, "max_tokens": 1500})
        for _ in range(5):
            stream = stub.GenerateStream(request)
            await stream.read()
            assert worker.metric("octavo_worker_requests_running") > 0
            stream.cancel()
    await until(
        lambda: (
            worker.metric("octavo_worker_kv_blocks_used") == idle
            and worker.metric("octavo_worker_requests_running") == 0
        ),
        10.0,
        lambda: worker.get("metrics", "/metrics")[1],
    )
