"""A link that passes nothing on any more, without a word, is noticed at both ends as soon as the settings say."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.processes.tcp_proxy import TcpProxy

from octavo.router.dispatch.wire import CHANNEL_OPTIONS
from octavo.worker.channel import OPTIONS

METHOD = "/octavo.v1.Test/Stay"
PINGS = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
Options = tuple[tuple[str, int], ...]


def hurried(options: Options) -> Options:
    """With a tenth of the waiting."""
    assert {value for name, value in options if name in PINGS} == {5_000}
    return tuple((name, value // 10 if name in PINGS else value) for name, value in options)


class Leader:
    """Its one method stays until the caller is gone."""

    def __init__(self) -> None:
        self.heard, self.left = asyncio.Event(), asyncio.Event()
        handler = grpc.stream_stream_rpc_method_handler(self._stay)
        service, method = METHOD.strip("/").split("/")
        self.handlers = grpc.method_handlers_generic_handler(service, {method: handler})

    async def _stay(self, messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        try:
            async for message in messages:
                self.heard.set()
                yield message
        finally:
            self.left.set()


@pytest.mark.parametrize("options", [OPTIONS, CHANNEL_OPTIONS], ids=["supervisor", "router"])
async def test_a_link_that_falls_silent_is_noticed_at_both_ends(tmp_path: Path, options: Options) -> None:
    leader, server = Leader(), grpc.aio.server(options=hurried(OPTIONS))
    server.add_generic_rpc_handlers((leader.handlers,))
    server.add_insecure_port(f"unix:{tmp_path}/leader")
    await server.start()
    try:
        with TcpProxy(f"unix:{tmp_path}/proxy", f"unix:{tmp_path}/leader") as proxy:
            async with grpc.aio.insecure_channel(f"unix:{tmp_path}/proxy", options=hurried(options)) as channel:
                call = channel.stream_stream(METHOD)()
                await call.write(b"here")
                await asyncio.wait_for(leader.heard.wait(), 10)
                assert await call.read() == b"here"
                proxy.black_hole()
                async with asyncio.timeout(15):  # a quarter of gRPC's minute
                    await leader.left.wait()
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call.read()
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await server.stop(0)
