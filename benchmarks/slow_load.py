"""Clients that are slow on purpose: `python benchmarks/slow_load.py KIND PORT COUNT`, PORT of HTTP or of gRPC.

A process of its own, so that it takes nothing from the benchmark. It prints a line when all have begun and goes on
until killed.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable

from http_load import post

from octavo.proto.v1 import octavo_pb2

MIB = 1 << 20
BODY = json.dumps({"model": "fake", "prompt": "x" * (MIB - 100), "max_tokens": 1}).encode()
LONG = 7000  # tokens that no client reads
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
INITIAL_WINDOW = b"\x00\x04"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2 (RFC 9113)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _grpc(method: str, message: bytes, length: int, window: int) -> bytes:
    """A call whose message is said to be of that length. window: of what the client takes; 0: nothing."""

    def field(start: bytes, *texts: bytes) -> bytes:
        return start + b"".join(bytes((len(text),)) + text for text in texts)

    path = f"/octavo.v1.Inference/{method}".encode()
    block = b"\x83\x86" + field(b"\x04", path) + field(b"\x01", b"bench")  # POST, http, :path, :authority
    block += field(b"\x0f\x10", b"application/grpc") + field(b"\x00", b"te", b"trailers")
    parts = [message[at : at + 16_000] for at in range(0, len(message), 16_000)]
    parts[0] = b"\x00" + length.to_bytes(4, "big") + parts[0]
    whole = len(message) == length
    ends = [whole and part is parts[-1] for part in parts]
    return (
        PREFACE
        + _frame(SETTINGS, 0, 0, INITIAL_WINDOW + window.to_bytes(4, "big"))
        + _frame(HEADERS, 4, 1, block)
        + b"".join(_frame(DATA, int(end), 1, part) for part, end in zip(parts, ends, strict=True))
    )


def _unread() -> bytes:
    return post(
        "/v1/completions", json.dumps({"model": "fake", "prompt": "x", "max_tokens": LONG, "stream": True}).encode()
    )


def _grpc_unread() -> bytes:
    ask = octavo_pb2.GenerateRequest(prompt=[octavo_pb2.Prompt(text="x")], max_tokens=LONG).SerializeToString()
    return _grpc("GenerateStream", ask, len(ask), 0)


KINDS: dict[str, Callable[[], bytes]] = {  # what each sends, and then no more
    "head": lambda: post("/v1/completions", BODY)[:60],
    "body": lambda: post("/v1/completions", BODY)[:-1],
    "unread": _unread,
    "grpc message": lambda: _grpc("Generate", b"x" * 60_000, 8 * MIB - 1, 65_535),
    "grpc unread": _grpc_unread,
}


class Slow(asyncio.Protocol):
    """Sends and never reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        transport.write(self.sent)

    def __init__(self, sent: bytes) -> None:
        self.sent = sent


async def _run(kind: str, port: int, count: int) -> None:
    loop, sent = asyncio.get_running_loop(), KINDS[kind]()
    for _ in range(count):
        with contextlib.suppress(ConnectionError):
            await loop.create_connection(lambda: Slow(sent), "127.0.0.1", port)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("port", type=int, help="on this machine, of HTTP or of gRPC")
    parser.add_argument("count", type=int, help="of clients")
    flags = parser.parse_args()
    asyncio.run(_run(flags.kind, flags.port, flags.count))


if __name__ == "__main__":
    main()
