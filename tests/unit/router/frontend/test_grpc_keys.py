"""Over gRPC a key is needed as over HTTP: by every method but the health service's."""

from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from octavo.router.frontend.grpc.grpc_keys import HEALTH, KeyInterceptor
from octavo.router.frontend.keys import Keys

KEY = (("authorization", "Bearer right"),)
SERVICE = "/octavo.test.Service/"


async def one(request: bytes, context: object) -> bytes:
    return request


async def many(request: bytes, context: object) -> AsyncIterator[bytes]:
    yield request
    yield request


def handlers(service: str) -> grpc.GenericRpcHandler:
    methods = {"One": grpc.unary_unary_rpc_method_handler(one), "Many": grpc.unary_stream_rpc_method_handler(many)}
    return grpc.method_handlers_generic_handler(service.strip("/"), methods)


@pytest_asyncio.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(interceptors=[KeyInterceptor(Keys(["right"]), lambda _: None)])
    server.add_generic_rpc_handlers((handlers(SERVICE), handlers(HEALTH)))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as made:
        yield made
    await server.stop(0)


async def call(channel: grpc.aio.Channel, method: str, metadata: tuple[tuple[str, str], ...]) -> int:
    """How many messages came."""
    if method.endswith("One"):
        return len([await channel.unary_unary(method)(b"x", metadata=metadata, timeout=10)])
    return len([message async for message in channel.unary_stream(method)(b"x", metadata=metadata, timeout=10)])


@pytest.mark.parametrize(("method", "messages"), [("One", 1), ("Many", 2)])
async def test_a_key_opens_every_method(channel: grpc.aio.Channel, method: str, messages: int) -> None:
    assert await call(channel, SERVICE + method, KEY) == messages
    assert await call(channel, HEALTH + method, ()) == messages


WRONG = [
    (),
    (("authorization", "Bearer wrong"),),
    (("authorization", "right"),),
    (("x-api-key", "right"),),
    (*KEY, ("authorization", "Bearer wrong")),
]


@pytest.mark.parametrize("metadata", WRONG)
@pytest.mark.parametrize("method", ["One", "Many", "NoSuchMethod/One"])
async def test_without_one_every_method_is_refused(
    channel: grpc.aio.Channel, method: str, metadata: tuple[tuple[str, str], ...]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(channel, SERVICE + method, metadata)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert "wrong" not in (refused.value.details() or "")
