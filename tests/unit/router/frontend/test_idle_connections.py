"""A connection that sends no request is closed, whether it is silent, slow, or has been answered before."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from aiohttp import web

from octavo.router.frontend.http.server import HttpServer
from octavo.router.frontend.request_pipeline import ServerState, Services
from octavo.router.jobs.generation import Dispatcher
from octavo.router.metrics import RouterMetrics
from octavo.router.process.metrics_endpoint import metrics_server
from octavo.router.tokenizer_pool.model_loader import ModelLoader

IDLE_S = 0.5
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def api() -> web.Server:
    unused = cast(Dispatcher, None)
    return HttpServer(Services(unused, ModelLoader(unused), RouterMetrics(), ServerState(), "", 1.0)).build(IDLE_S)


def metrics() -> web.Server:
    async def page() -> bytes:
        return b"x 1\n"

    return metrics_server(page, IDLE_S)


@asynccontextmanager
async def connected(server: web.Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0])
    yield reader, writer
    writer.close()
    await runner.cleanup()


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Never the end of the headers, for as long as the connection stays."""
    for byte in data[:-1]:
        writer.write(bytes((byte,)))
        await asyncio.sleep(IDLE_S / 5)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What came before the end. A socket that is closed with bytes unread ends with a reset: TCP knows no other way."""
    came = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(10 * IDLE_S):
            while piece := await reader.read(1024):
                came += piece
    return came


@pytest.mark.parametrize("make", [api, metrics])
@pytest.mark.parametrize("sends", [b"", GET])
async def test_a_connection_without_a_request_is_closed(make: Any, sends: bytes) -> None:
    async with connected(make()) as (reader, writer):
        dripping = asyncio.create_task(drip(writer, sends))
        begun = time.monotonic()
        assert await closed(reader) == b""
        assert time.monotonic() - begun > IDLE_S / 2
        dripping.cancel()


@pytest.mark.parametrize("sends", [b"", GET])
async def test_after_an_answer_the_next_request_has_as_long(sends: bytes) -> None:
    async with connected(api()) as (reader, writer):
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        dripping = asyncio.create_task(drip(writer, sends))
        await closed(reader)
        dripping.cancel()


async def test_a_request_that_comes_in_time_is_answered() -> None:
    async with connected(api()) as (reader, writer):
        await asyncio.sleep(IDLE_S / 2)
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
