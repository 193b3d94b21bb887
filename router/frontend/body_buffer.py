"""Request bodies in memory, bounded: requests wait as bytes while the model is not loaded or the helpers are busy.

Only received bytes count, and a body must be complete within BODY_S: a client that announces much and sends nothing
takes no room from others. Incomplete bodies may hold a part of the room only: a client that stops short of the end
takes no room from clients that send all.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import HttpVersion11, web

from octavo.router.jobs.generation import RequestError

MAX_BODY_BYTES = 8 << 20
MAX_HELD_BYTES = 256 << 20
MAX_COMING_BYTES = MAX_HELD_BYTES // 2  # when a body that is not whole yet would hold more
BODY_S = 60.0  # for a whole body to come


class BufferedBody:
    """One body that is being read, and its share of the bound."""

    def __init__(self, body_buffer: "BodyBuffer", request: web.BaseRequest) -> None:
        self._buffer = body_buffer
        self._request = request
        self.size = 0

    async def read(self) -> bytes:
        """Raises RequestError 413 for a body over MAX_BODY_BYTES, 415 for a compressed one, 429 when too many are held,
        408 when it stalls.
        """
        self._refuse_compressed()
        length = self._request.content_length
        if length is not None and length > MAX_BODY_BYTES:
            raise _too_large()
        self._go_on()
        try:
            if self._request.content.is_eof():  # most bodies come with their head, and need no timer
                return self._arrived()
            async with asyncio.timeout(BODY_S):
                return await self._whole()
        except TimeoutError:
            message = f"the body did not come whole within {BODY_S:.0f} s; send it faster"
            raise RequestError(408, "invalid_request_error", "body_too_slow", message) from None
        except web.RequestPayloadError:
            raise RequestError(
                400, "invalid_request_error", "bad_body", "the body is not framed as HTTP has it"
            ) from None
        except web.HTTPException as error:
            raise RequestError(error.status, "invalid_request_error", "bad_body", error.reason) from error

    def _arrived(self) -> bytes:
        """A body of which nothing is to come."""
        body = self._request.content.read_nowait()
        self._buffer.take(len(body), whole=True)
        self.size = len(body)
        if self.size > MAX_BODY_BYTES:
            raise _too_large()
        return body

    async def _whole(self) -> bytes:
        pieces: list[bytes] = []
        length = self._request.content_length
        while piece := await self._request.content.readany():
            self._buffer.take(len(piece), whole=self.size + len(piece) == length)
            self.size += len(piece)
            if self.size > MAX_BODY_BYTES:
                raise _too_large()
            pieces.append(piece)
        return b"".join(pieces)

    def _refuse_compressed(self) -> None:
        """A kilobyte could become a gigabyte."""
        encoding = self._request.headers.get("Content-Encoding", "").lower()
        if encoding not in ("", "identity"):
            message = "compressed bodies are not supported; send the body without Content-Encoding"
            raise RequestError(415, "invalid_request_error", "unsupported_encoding", message)

    def _go_on(self) -> None:
        """curl asks before it sends a large body, and waits a second for this."""
        asked = self._request.headers.get("Expect", "").lower() == "100-continue"
        transport = self._request.transport
        if asked and self._request.version >= HttpVersion11 and transport is not None and not transport.is_closing():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


class BodyBuffer:
    """The bytes of all requests that wait. bytes: held now."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def of(self, request: web.BaseRequest) -> Iterator[BufferedBody]:
        held = BufferedBody(self, request)
        try:
            yield held
        finally:
            self.bytes -= held.size

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """For a message that has come whole. Raises RequestError 429 when too many are held."""
        self.take(size, whole=True)
        try:
            yield
        finally:
            self.bytes -= size

    def take(self, size: int, whole: bool) -> None:
        """whole: nothing is to come after these bytes. Raises RequestError 429 when too many are held."""
        if self.bytes + size > (MAX_HELD_BYTES if whole else MAX_COMING_BYTES):
            message = (
                f"the requests that wait hold {self.bytes} bytes already, near this router's bound; try again later"
            )
            raise RequestError(429, "rate_limit_error", "queue_full", message, 1.0)
        self.bytes += size


def _too_large() -> RequestError:
    return RequestError(413, "invalid_request_error", "body_too_large", f"the body exceeds {MAX_BODY_BYTES} bytes")
