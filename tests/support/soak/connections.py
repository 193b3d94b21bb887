"""Connections that are no requests of the history: many at once, and such as never send a whole request."""

import asyncio
from collections import Counter

BURST, HALF_OPEN = 300, 60
PATIENCE_S = 30.0
HELD_S = 20.0  # that a half-open one stays
_ASK = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
_HALVES = (
    b"POST /v1/completions HTT",
    _POST + b"Content-Length: 900\r\n\r\n{",
    b"",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
)


async def burst(port: int) -> Counter[str]:
    """What came of so many at once: statuses, and how others failed."""
    return Counter(await asyncio.gather(*(_ask(port) for _ in range(BURST))))


async def half_open(port: int, end: asyncio.Event) -> Counter[str]:
    """Until `end`, or for HELD_S seconds; then they are reset."""
    return Counter(await asyncio.gather(*(_half(port, _HALVES[index % 4], end) for index in range(HALF_OPEN))))


async def _ask(port: int) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(_ASK)
                line = (await reader.read()).partition(b"\r\n")[0].split()
            finally:
                writer.transport.abort()
        return line[1].decode() if len(line) > 1 else "closed"
    except (OSError, TimeoutError) as error:
        return type(error).__name__


async def _half(port: int, data: bytes, end: asyncio.Event) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            async with asyncio.timeout(HELD_S):
                await end.wait()
        finally:
            writer.transport.abort()
    except (OSError, TimeoutError):
        pass
    return "half-open"
