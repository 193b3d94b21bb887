"""A client that takes nothing any more, or vanished: its work ends at a bound, and no other client notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from support.patience import PATIENCE_S
from support.processes.ports import free_port
from support.processes.tcp_proxy import TcpProxy
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.grpc_calls import calling, message_of, refused
from support.router.vocabularies import byte_level, files, write

from octavo.proto.v1 import octavo_pb2
from octavo.router.answers.writers import grpc_writer
from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.frontend.address import Address
from octavo.router.frontend.body_buffer import MAX_BODY_BYTES, MAX_COMING_BYTES, BodyBuffer
from octavo.router.frontend.grpc import grpc_calls, grpc_messages, grpc_server, grpc_service
from octavo.router.frontend.grpc.grpc_server import GrpcServer
from octavo.router.frontend.request_pipeline import ServerState, Services
from octavo.router.metrics import RouterMetrics
from octavo.router.tokenizer_pool.model_loader import ModelLoader

TOKENS = 15_000
MOST = 24  # connections, and calls
UNREAD = message_of({"prompt": "x", "max_tokens": TOKENS})
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384))


@dataclass(frozen=True, slots=True)
class Bench:
    """The gRPC side of a router in this process, whose bounds a test may set."""

    leader: FakeLeader
    state: ServerState
    body_buffer: BodyBuffer
    address: str

    async def idle(self) -> None:
        """No call is open any more, and the leader has nothing to do."""
        async with asyncio.timeout(PATIENCE_S):
            while self.state.open or self.leader.under_way:
                await asyncio.sleep(0.02)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    pings = {name: 1_000 for name, _ in grpc_server.OPTIONS if "keepalive_time" in name or "ping_timeout" in name}
    assert len(pings) == 3
    monkeypatch.setattr(grpc_server, "OPTIONS", tuple((dict(grpc_server.OPTIONS) | pings).items()))
    model = write(tmp_path / "model", files(byte_level()))
    address = f"unix:{tmp_path}/leader.sock"
    script = Script(tokenizer=model, served_name="m", context_length=65_536, ids=(300, 301, 302))
    async with serving(script, address) as leader, running(FleetSettings(groups=(address,))) as dispatcher:
        model_loader, listen = ModelLoader(dispatcher), Address("127.0.0.1", free_port())
        services = Services(dispatcher, model_loader, RouterMetrics(), ServerState(), "", 10.0)
        server = GrpcServer(services, listen, MOST)
        await server.start()
        try:
            yield Bench(leader, services.state, services.body_buffer, str(listen))
        finally:
            await server.stop()
            await model_loader.close()


def silent(
    channel: grpc.aio.Channel,
) -> "grpc.aio.StreamUnaryCall[octavo_pb2.GenerateRequest, octavo_pb2.GenerateResponse]":
    """A call whose message never comes."""

    async def messages() -> AsyncIterator[octavo_pb2.GenerateRequest]:
        await asyncio.Event().wait()
        yield UNREAD

    return channel.stream_unary(
        "/octavo.v1.Inference/Generate",
        request_serializer=octavo_pb2.GenerateRequest.SerializeToString,
        response_deserializer=octavo_pb2.GenerateResponse.FromString,
    )(messages())


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
    monkeypatch.setattr(grpc_calls, "ABORT_TIMEOUT_S", 0.5)
    assert await _left_unread(bench) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
    assert not bench.leader.cancels, "the engine had finished"


async def test_more_unread_text_than_may_wait_ends_the_generation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_writer, "MERGED_CHARACTERS", 5_000)
    monkeypatch.setattr(grpc_calls, "ABORT_TIMEOUT_S", 0.5)
    assert await _left_unread(bench) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
    assert len(bench.leader.cancels) == 1


async def test_a_message_that_never_comes_whole_ends_its_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_messages, "BODY_S", 0.3)
    async with grpc.aio.insecure_channel(bench.address) as channel:
        status, code, _ = await asyncio.wait_for(refused(silent(channel)), PATIENCE_S)
    assert (status, code) == (grpc.StatusCode.DEADLINE_EXCEEDED, "body_too_slow")


async def test_messages_that_do_not_come_hold_bounded_room_and_others_are_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_messages, "AT_ONCE_S", 0.1)
    most = MAX_COMING_BYTES // MAX_BODY_BYTES
    async with grpc.aio.insecure_channel(bench.address) as channel, calling(bench.address) as stub:
        calls = [asyncio.ensure_future(refused(silent(channel))) for _ in range(most + 4)]
        async with asyncio.timeout(PATIENCE_S):
            while sum(call.done() for call in calls) < 4:
                await asyncio.sleep(0.02)
        answer = await stub.Generate(message_of({"prompt": "x", "max_tokens": 3}), timeout=PATIENCE_S)
        assert answer.usage.completion_tokens == 3
        over = [call.result() for call in calls if call.done()]
        assert over == [(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue_full", None)] * 4
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await bench.idle()
    assert bench.body_buffer.bytes == 0


async def test_connections_and_calls_beyond_the_bound_are_refused_and_all_within_are_served(bench: Bench) -> None:
    host, _, port = bench.address.rpartition(":")
    ask = message_of({"prompt": "x", "max_tokens": 3})
    async with calling(bench.address) as stub, grpc.aio.insecure_channel(bench.address) as channel:
        assert (await stub.Generate(ask)).usage.completion_tokens == 3
        calls = [asyncio.ensure_future(refused(silent(channel))) for _ in range(MOST)]
        async with asyncio.timeout(PATIENCE_S):
            while bench.state.open < MOST:
                await asyncio.sleep(0.02)
        assert (await refused(stub.Generate(ask)))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        calls.pop().cancel()
        async with asyncio.timeout(PATIENCE_S):
            while bench.state.open == MOST:
                await asyncio.sleep(0.02)
        assert (await stub.Generate(ask)).usage.completion_tokens == 3
        held = [await asyncio.open_connection(host, int(port)) for _ in range(MOST - 2)]
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(1), PATIENCE_S) == b"", "closed at once"
        writer.close()
        async with calling(bench.address) as other:
            assert (await refused(other.Generate(ask)))[0] == grpc.StatusCode.UNAVAILABLE
        assert (await stub.Generate(ask)).usage.completion_tokens == 3
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(PATIENCE_S), calling(bench.address) as other:
            answer = await other.Generate(ask, wait_for_ready=True)
            assert answer.usage.completion_tokens == 3
        for call in calls:
            call.cancel()
    await bench.idle()


async def test_a_client_that_vanishes_without_a_word_is_cancelled_in_the_engine(bench: Bench, tmp_path: Path) -> None:
    bench.leader.script = replace(bench.leader.script, interval_s=0.002)
    with TcpProxy(f"unix:{tmp_path}/proxy", bench.address) as proxy:
        async with calling(f"unix:{tmp_path}/proxy") as stub:
            stream = stub.GenerateStream(UNREAD)
            await stream.read()
            proxy.black_hole()
            bench.leader.body_buffer = True  # the next token is long in coming, so that only a ping can tell
            await bench.idle()
            assert len(bench.leader.cancels) == 1
            stream.cancel()
