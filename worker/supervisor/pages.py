"""Plain HTTP GET pages for the kubelet and Prometheus: one short answer a connection, nothing else."""

import asyncio
import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.worker.config import is_unix
from octavo.worker.errors import ConfigError

_REQUEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


async def serve_pages(flag: str, address: str, pages: Mapping[str, Callable[[], Page]]) -> asyncio.Server:
    """Answer GET for these paths on `host:port` or `unix:/path`. Raises ConfigError naming the flag."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, pages))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a client that went away or speaks no HTTP gets no answer
        finally:
            writer.close()

    try:
        if is_unix(address):
            return await asyncio.start_unix_server(answer, address.removeprefix("unix:"))
        host, _, port = address.rpartition(":")
        return await asyncio.start_server(answer, host.strip("[]"), int(port))
    except OSError as error:
        raise ConfigError(f"{flag}: cannot listen on {address}: {error}") from error


def _response(head: bytes, pages: Mapping[str, Callable[[], Page]]) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    if method not in (b"GET", b"HEAD"):
        page = Page(405, b"only GET is served here\n")
    elif path not in pages:
        page = Page(404, f"no such page; there are {', '.join(pages)}\n".encode())
    else:
        page = pages[path]()
    lines = (
        f"HTTP/1.1 {page.status} {http.HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else page.body)
