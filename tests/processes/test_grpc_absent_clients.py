"""A client that takes nothing any more, or vanished: its work ends at a bound, and nobody else notices."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from support.fake_leader import FakeLeader, Script, serving
from support.grpc_calls import calling, message_of
from support.patience import PATIENCE_S
from support.ports import free_port
from support.tcp_proxy import TcpProxy
from support.vocabularies import byte_level, files, write

from octavo.proto.v1 import octavo_pb2
from octavo.router import grpc_answers, grpc_calls, grpc_server, grpc_service
from octavo.router.assembly import FleetSettings, running
from octavo.router.config import Address
from octavo.router.grpc_server import GrpcServer
from octavo.router.metrics import RouterMetrics
from octavo.router.path import Life, Parts
from octavo.router.texts import Texts

TOKENS = 15_000
UNREAD = message_of({"prompt": "x", "max_tokens": TOKENS})
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384))


class Bench:
    """The gRPC side of a router in this process, whose bounds a test may set."""

    def __init__(self, leader: FakeLeader, life: Life, address: str) -> None:
        self.leader = leader
        self.life = life
        self.address = address

    async def idle(self) -> None:
        """No call is open any more, and the leader has nothing to do."""
        async with asyncio.timeout(PATIENCE_S):
            while self.life.open or self.leader.under_way:
                await asyncio.sleep(0.02)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    pings = {name: 1_000 for name, _ in grpc_server.OPTIONS if name.endswith(("keepalive_time_ms", "timeout_ms"))}
    assert len(pings) == 3
    monkeypatch.setattr(grpc_server, "OPTIONS", tuple((dict(grpc_server.OPTIONS) | pings).items()))
    model = write(tmp_path / "model", files(byte_level()))
    address = f"unix:{tmp_path}/leader.sock"
    script = Script(tokenizer=model, served_name="m", context_length=65_536, ids=(300, 301, 302))
    async with serving(script, address) as leader, running(FleetSettings(groups=(address,))) as dispatcher:
        texts, life, listen = Texts(dispatcher), Life(), Address("127.0.0.1", free_port())
        server = GrpcServer(Parts(dispatcher, texts, RouterMetrics(), life, "", 10.0), listen)
        await server.start()
        try:
            yield Bench(leader, life, str(listen))
        finally:
            await server.stop()
            await texts.close()


async def _left_unread(bench: Bench) -> grpc.StatusCode:
    """What the client finds that comes back when all is over."""
    async with calling(bench.address, *SMALL_WINDOW) as stub:
        stream = stub.GenerateStream(UNREAD)
        await stream.read()
        await bench.idle()
        other = await stub.Generate(message_of({"prompt": "x", "max_tokens": 3}), timeout=PATIENCE_S)
        assert other.usage.completion_tokens == 3
        try:
            while (chunk := await asyncio.wait_for(stream.read(), PATIENCE_S)) is not grpc.aio.EOF:
                assert not any(output.finish_reason for output in chunk.outputs)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return await stream.code()


async def test_an_end_that_is_not_taken_in_time_is_dropped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_service, "SLOW_CLIENT_S", 0.5)
    monkeypatch.setattr(grpc_calls, "LAST_WORD_S", 0.5)
    assert await _left_unread(bench) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
    assert not bench.leader.cancels, "the engine had finished"


async def test_more_unread_text_than_may_wait_ends_the_generation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_answers, "MERGED_CHARACTERS", 5_000)
    monkeypatch.setattr(grpc_calls, "LAST_WORD_S", 0.5)
    assert await _left_unread(bench) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
    assert len(bench.leader.cancels) == 1


async def test_a_message_that_never_comes_whole_ends_its_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_calls, "BODY_S", 0.3)
    never = asyncio.Event()

    async def silent() -> AsyncIterator[octavo_pb2.GenerateRequest]:
        await never.wait()
        yield UNREAD

    async with grpc.aio.insecure_channel(bench.address) as channel:
        call = channel.stream_unary(
            "/octavo.v1.Inference/Generate",
            request_serializer=octavo_pb2.GenerateRequest.SerializeToString,
            response_deserializer=octavo_pb2.GenerateResponse.FromString,
        )(silent())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call, PATIENCE_S)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await bench.idle()


async def test_a_client_that_vanishes_without_a_word_is_cancelled_in_the_engine(bench: Bench, tmp_path: Path) -> None:
    bench.leader.script = replace(bench.leader.script, interval_s=0.002)
    with TcpProxy(f"unix:{tmp_path}/proxy", bench.address) as proxy:
        async with calling(f"unix:{tmp_path}/proxy") as stub:
            stream = stub.GenerateStream(UNREAD)
            await stream.read()
            proxy.black_hole()
            bench.leader.holding = True  # the next token is long in coming, so that only a ping can tell
            await bench.idle()
            assert len(bench.leader.cancels) == 1
            stream.cancel()
