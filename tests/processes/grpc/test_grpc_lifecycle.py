"""A router's lifecycle as gRPC clients see it: health follows readiness, and a drain cuts no stream."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.patience import PATIENCE_S
from support.processes.commands import done
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.grpc_calls import calling, joined, message_of, refused, streamed
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, write

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc

CODES = grpc.StatusCode
ASKED = message_of({"prompt": "x", "max_tokens": 2})
LONG = message_of({"prompt": "x", "max_tokens": 2000})  # 40 s, unless the leader hurries
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = ("", "octavo.v1.Inference", "grpc.health.v1.Health")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    model = write(tmp_path / "model", files(byte_level()))
    return Script(tokenizer=model, served_name="m", context_length=2048, interval_s=0.02, ids=(300, 301, 302))


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/leader.sock"


@pytest.fixture
async def leader(script: Script, address: str) -> AsyncIterator[FakeLeader]:
    async with serving(script, address) as leader:
        yield leader


async def health(router: RunningRouter) -> list[int]:
    async with grpc.aio.insecure_channel(router.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return [(await stub.Check(health_pb2.HealthCheckRequest(service=name))).status for name in NAMES]


async def test_health_is_serving_exactly_while_readyz_is_200(script: Script, address: str) -> None:
    async with routing([address], ready=False) as router, grpc.aio.insecure_channel(router.grpc) as channel:
        assert await router.status("/readyz") == 503 and set(await health(router)) == {NOT_SERVING}
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="octavo.v1.Inference"))
        assert (await watch.read()).status == NOT_SERVING
        async with serving(script, address):
            assert (await asyncio.wait_for(watch.read(), PATIENCE_S)).status == SERVING
            assert await router.status("/readyz") == 200 and set(await health(router)) == {SERVING}
        assert (await asyncio.wait_for(watch.read(), PATIENCE_S)).status == NOT_SERVING
        assert await router.status("/readyz") == 503 and set(await health(router)) == {NOT_SERVING}
        watch.cancel()


async def test_health_of_a_service_that_is_not_there_is_unknown(leader: FakeLeader, address: str) -> None:
    async with routing([address]) as router, grpc.aio.insecure_channel(router.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        other = health_pb2.HealthCheckRequest(service="octavo.v1.Training")
        assert (await refused(stub.Check(other)))[0] == CODES.NOT_FOUND
        watch = stub.Watch(other)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()
        listed = await stub.List(health_pb2.HealthListRequest())
        assert {name: status.status for name, status in listed.statuses.items()} == dict.fromkeys(NAMES, SERVING)


async def test_sigterm_under_streams_cuts_none_and_exits_0(leader: FakeLeader, address: str) -> None:
    async with (
        routing([address], "--processes", "2", "--drain-delay", "3") as router,
        grpc.aio.insecure_channel(router.grpc) as watching,
    ):
        watch = health_pb2_grpc.HealthStub(watching).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        streams = [asyncio.ensure_future(_alone(router, LONG)) for _ in range(10)]
        await until(lambda: leader.under_way == 10)
        router.process.send_signal(signal.SIGTERM)
        while await router.status("/routerz") != 503:
            await asyncio.sleep(0.02)
        late = await _alone(router, ASKED)
        assert late.usage.completion_tokens == 2, "it serves on until the delay is over"
        async with asyncio.timeout(PATIENCE_S):
            while await _answers(router):
                await asyncio.sleep(0.05)
        leader.script = replace(leader.script, interval_s=0.0)
        for answer in await asyncio.wait_for(asyncio.gather(*streams), PATIENCE_S):
            assert answer.usage.completion_tokens == 2000 == len(answer.outputs[0].token_ids)
        assert await router.process.ended(PATIENCE_S) == 0, "a Watch call delays no drain"


async def _answers(router: RunningRouter) -> bool:
    """On a new connection; if not, it is refused as it should be."""
    async with calling(router.grpc) as fresh:
        return await _is_answered(fresh)


async def _is_answered(stub: octavo_pb2_grpc.InferenceStub) -> bool:
    """Or refused. gRPC's server itself cancels a call that arrives once it stops, until its client knows."""
    try:
        await stub.Generate(ASKED)
    except grpc.aio.AioRpcError as error:
        assert error.code() in (CODES.UNAVAILABLE, CODES.CANCELLED)
        return False
    return True


async def _alone(router: RunningRouter, request: octavo_pb2.GenerateRequest) -> octavo_pb2.GenerateResponse:
    """A stream on a connection of its own."""
    async with calling(router.grpc) as stub:
        return joined(await streamed(stub, request))


async def test_a_call_on_an_old_connection_is_refused_while_its_stream_goes_on(
    leader: FakeLeader, address: str
) -> None:
    async with routing([address], "--drain-delay", "0") as router, calling(router.grpc) as stub:
        stream = asyncio.ensure_future(streamed(stub, LONG))
        await until(lambda: leader.under_way == 1)
        router.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            while await _is_answered(stub):
                await asyncio.sleep(0.05)
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):  # no connection is taken any more
                await stub.Generate(ASKED)
        leader.script = replace(leader.script, interval_s=0.0)
        assert joined(await asyncio.wait_for(stream, PATIENCE_S)).usage.completion_tokens == 2000
        assert await router.process.ended(PATIENCE_S) == 0


async def test_the_grace_period_ends_what_does_not_end_by_itself(leader: FakeLeader, address: str) -> None:
    async with (
        routing([address], "--drain-delay", "0", "--grace-period", "3") as router,
        calling(router.grpc) as stub,
    ):
        stuck = asyncio.ensure_future(streamed(stub, LONG))
        await until(lambda: leader.under_way == 1)
        router.process.send_signal(signal.SIGTERM)
        assert await router.process.ended(PATIENCE_S) == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await stuck


async def test_requests_wait_for_the_first_group_and_are_answered(script: Script, address: str) -> None:
    async with routing([address], ready=False) as router, calling(router.grpc) as stub:
        early = asyncio.ensure_future(streamed(stub, ASKED))
        await asyncio.sleep(0.5)
        async with serving(script, address):
            assert joined(await asyncio.wait_for(early, PATIENCE_S)).usage.completion_tokens == 2


async def test_a_port_that_is_taken_by_another_ends_the_router_with_a_message(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    places = ("--group", f"unix:{tmp_path}/x", "--http", "127.0.0.1:0", "--grpc", f"127.0.0.1:{port}")
    ended = await asyncio.to_thread(done, "router", *places)
    taken.close()
    assert ended.code == 3 and f"--grpc 127.0.0.1:{port}: another process listens there" in ended.err
