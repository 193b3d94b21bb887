"""Clients' connections: how many there may be, limits of headers, and errors of HTTP parsing answered as
all others are.

aiohttp would answer with the offending line and log it, and there a client's key or prompt may stand.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from octavo.router.frontend.http.responses import error_response
from octavo.router.frontend.request_pipeline import internal_error
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import error_body

log = logging.getLogger(__name__)

MAX_HEADERS = 100
MAX_LINE_BYTES = 8190  # of the request line, and of each header
LINGER_S = 1.0  # for a client to read why it was turned away: a close at once would cut that off


class Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What went wrong before a request came to its handler, or in it by a bug."""
        own = secrets.token_hex(12)
        if isinstance(exc, HttpProcessingError):
            log.debug("a request was refused: %s", type(exc).__name__)
            error = _refusal(exc)
        else:
            log.error("request %s failed", own, exc_info=exc)
            error = internal_error(own)
        if isinstance(self._manager, Connections):
            self._manager.refused(error.status)
        response = error_response(error, own)
        response.force_close()
        return response


class TurnedAway(asyncio.Protocol):
    """A connection beyond the bound: answered 503 before its request, and closed after LINGER_S."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        accepted.write(_TOO_MANY)
        accepted.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, accepted.abort)


class Connections(web.Server):
    """aiohttp's server of such connections. refused: called with the status of each error that no handler saw.

    most: that may be open; 0: any number. Connections of one accepted burst may exceed it together.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        refused: Callable[[int], None],
        most: int,
        **settings: Any,  # Any: aiohttp's own
    ) -> None:
        super().__init__(handler, **settings)
        self.refused = refused
        self._most = most

    @property
    def count(self) -> int:
        """Open now."""
        return len(self._connections)  # aiohttp's own table; its public copy costs as much as there are

    def __call__(self) -> RequestHandler:
        if 0 < self._most <= self.count:
            self.refused(503)
            return cast(RequestHandler, TurnedAway())  # a server asks for no more of it than of any protocol
        return Connection(self, loop=self._loop, **self._kwargs)


def _refusal(error: HttpProcessingError) -> RequestError:
    if isinstance(error, LineTooLong) or error.message.startswith("Too many headers"):
        message = f"more than {MAX_HEADERS} headers, or one (or the path) of more than {MAX_LINE_BYTES} bytes"
        return RequestError(431, "invalid_request_error", "headers_too_large", message)
    return RequestError(400, "invalid_request_error", "bad_request", "the request is not valid HTTP")


def _too_many() -> bytes:
    message = "this router has as many connections as it may; connect again later, or use fewer"
    body = orjson.dumps(error_body(RequestError(503, "overloaded_error", "too_many_connections", message)))
    head = "HTTP/1.1 503 Service Unavailable", "Content-Type: application/json", f"Content-Length: {len(body)}"
    return "\r\n".join((*head, "Retry-After: 1", "Connection: close", "", "")).encode() + body


_TOO_MANY = _too_many()
