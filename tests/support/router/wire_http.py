"""HTTP as bytes on a socket, for what a client library would not send or would hide."""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from support.patience import PATIENCE_S


@dataclass(slots=True)
class RawAnswer:
    """headers: names in small letters. closed: the server ended the connection."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    closed: bool = False


async def raw(url: str, data: bytes, timeout_s: float = PATIENCE_S) -> RawAnswer:
    """Sends these bytes and reads one answer with a length, or all until the end."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        async with asyncio.timeout(timeout_s):
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:
                pass  # it has said enough to be refused
            return await read(reader, has_body=not data.startswith(b"HEAD "))
    finally:
        writer.close()


async def read(reader: asyncio.StreamReader, has_body: bool = True) -> RawAnswer:
    answer = RawAnswer()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        answer.closed = True
        return answer
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    answer.status = int(first.split(" ")[1])
    answer.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if has_body:
        answer.body = await reader.readexactly(int(answer.headers.get("content-length", "0")))
    return answer


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """path: as it is put on the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", "Content-Type: application/json", *headers, method="POST") + body
