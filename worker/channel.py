"""gRPC settings of the worker's servers and of its supervisor's client; the router's are the same.

A peer that is gone without a word (a cut network, a stopped process) is noticed by keepalive: a ping after 5 s, and
the connection ends 5 s after a ping without an answer.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

MESSAGE_BYTES = 64 << 20
FIRST_S = 10.0  # for the first message of a stream to come

Message = TypeVar("Message")

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.ping_timeout_ms", 5000),  # a minute by default, which would win over the one above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),
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
