"""One client's connection: bounds on what may stand before a body, and errors below HTTP told as all others are.

aiohttp would answer with the offending line and log it, and there a client's key or prompt may stand.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from octavo.router.generation import RequestError
from octavo.router.path import bug
from octavo.router.responses import error_response

log = logging.getLogger(__name__)

MAX_HEADERS = 100
MAX_LINE_BYTES = 8190  # of the request line, and of each header


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
            error = bug(own)
        if isinstance(self._manager, Connections):
            self._manager.refused(error.status)
        response = error_response(error, own)
        response.force_close()
        return response


class Connections(web.Server):
    """aiohttp's server of such connections. refused: is told the status of each error that no handler saw."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        refused: Callable[[int], None],
        **settings: Any,  # Any: aiohttp's own
    ) -> None:
        super().__init__(handler, **settings)
        self.refused = refused

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


def _refusal(error: HttpProcessingError) -> RequestError:
    if isinstance(error, LineTooLong) or error.message.startswith("Too many headers"):
        message = f"more than {MAX_HEADERS} headers, or one (or the path) of more than {MAX_LINE_BYTES} bytes"
        return RequestError(431, "invalid_request_error", "headers_too_large", message)
    return RequestError(400, "invalid_request_error", "bad_request", "the request is not valid HTTP")
