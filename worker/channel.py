"""gRPC settings of the worker's servers and of its supervisor's client."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from octavo.shared import grpc_options

FIRST_S = 10.0  # for the first message of a stream to come

Message = TypeVar("Message")

OPTIONS: tuple[tuple[str, int], ...] = (
    *grpc_options.OPTIONS,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),  # a second worker on the same port is an error, not a silent share of its requests
)


async def first(messages: AsyncIterator[Message]) -> Message | None:
    """The message that opens a stream; None when it ended, or said nothing for too long."""
    try:
        async with asyncio.timeout(FIRST_S):
            return await anext(aiter(messages), None)
    except TimeoutError:
        return None
