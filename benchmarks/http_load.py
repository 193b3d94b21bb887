"""A client that costs little: HTTP/1.1 over asyncio protocols, counting frames instead of parsing them.

As a process of its own it keeps streams open (`--port N --streams N`), or answers every request at once with one
frame, which shows what the client itself takes (`--serve PORT`). It prints a line when ready and goes on until killed.
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import cast

import uvloop

FRAME = b"data: {"
END_OF_CHUNKS = b"0\r\n\r\n"


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(slots=True)
class Totals:
    """Of all connections: bytes arrive in `reads`; a streamed token is a frame, if the router merges nothing."""

    frames: int = 0
    reads: int = 0
    failures: list[bytes] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self.sent = self.first = 0.0
        self.begun: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._left = -1  # bytes of a body with a length; -1: chunked, or no head yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> asyncio.Future[None]:
        """Resolves when the answer is complete."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._done, self.begun = loop.create_future(), loop.create_future()
        self._left = -1
        self.first = 0.0
        self.sent = time.monotonic()
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self.totals.reads += 1
        self.totals.frames += data.count(FRAME)
        if not self.first:
            self._begin(data)
        elif self._left > 0:
            self._left -= len(data)
        if self._left == 0 or (self._left == -1 and data.endswith(END_OF_CHUNKS)):
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self.totals.failures.append(b"connection lost")
            self._end()

    def close(self) -> None:
        """An answer that is still coming in is given up."""
        self._done = None
        if self._transport is not None:
            self._transport.close()

    def _begin(self, data: bytes) -> None:
        self.first = time.monotonic()
        if not data.startswith(b"HTTP/1.1 200"):
            self.totals.failures.append(data[:300])
        head, _, body = data.partition(b"\r\n\r\n")
        _, found, length = head.lower().partition(b"content-length: ")
        if found:
            self._left = int(length.split(b"\r\n")[0]) - len(body)
        if self.begun is not None and not self.begun.done():
            self.begun.set_result(None)

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        if self.begun is not None and not self.begun.done():
            self.begun.set_result(None)


async def connect(port: int, totals: Totals) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(totals), "127.0.0.1", port)
    return connection


class AtOnce(asyncio.Protocol):
    """A server that answers every request with one frame."""

    ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n0\r\n\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.ANSWER)


async def _keep_open(port: int, streams: int) -> None:
    """Begun over a second, so that they do not run in step."""
    totals = Totals()
    body = {"model": "fake", "prompt": "tell a story", "max_tokens": 7000, "temperature": 0, "stream": True}
    request = post("/v1/completions", json.dumps(body).encode())
    connections = [await connect(port, totals) for _ in range(streams)]
    for connection in connections:
        connection.send(request)
        await asyncio.sleep(1.0 / streams)
    await asyncio.gather(*(connection.begun for connection in connections if connection.begun is not None))
    assert not totals.failures, totals.failures[:1]
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(AtOnce, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, help="of the router")
    parser.add_argument("--streams", type=int, default=1, help="how many to keep open")
    parser.add_argument("--serve", type=int, help="port on which to answer at once, instead")
    flags = parser.parse_args()
    uvloop.run(_serve(flags.serve) if flags.serve else _keep_open(flags.port, flags.streams))


if __name__ == "__main__":
    main()
