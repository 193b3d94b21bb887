"""HTTP responses: JSON, errors in OpenAI's form, and the event stream that aiohttp thinks it has already sent."""

import math
from collections.abc import Mapping
from email.utils import formatdate

import orjson
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import error_body

JSON = "application/json"
REQUEST_ID = "X-Request-Id"
SHOULD_RETRY = "X-Should-Retry"  # heeded by OpenAI's clients, which else send a 500 again
MAX_REQUEST_ID = 128
SERVER = {"Server": "octavo"}  # not which library in which version


class EventStream(web.StreamResponse):
    """A response whose bytes were written to the transport by an answer's writer: aiohttp adds nothing."""

    def __init__(self, alive: bool) -> None:
        super().__init__(status=200)
        self._alive = alive

    @property
    def keep_alive(self) -> bool:
        return self._alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    sent = {**SERVER, **(headers or {})}
    return web.Response(body=orjson.dumps(value), status=status, headers=sent, content_type=JSON)


def no_content(headers: Mapping[str, str]) -> web.Response:
    return web.Response(status=204, headers={**SERVER, **headers})


def error_response(error: RequestError, request_id: str) -> web.Response:
    headers = {REQUEST_ID: request_id}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.final:
        headers[SHOULD_RETRY] = "false"
    return json_response(error_body(error), error.status, headers)


def stream_head(request_id: str, chunked: bool, alive: bool, headers: Mapping[str, str]) -> bytes:
    """Status line and headers of an event stream. HTTP/1.0 knows no chunks: there the end is the connection's."""
    lines = [
        "HTTP/1.1 200 OK" if chunked else "HTTP/1.0 200 OK",
        "Content-Type: text/event-stream; charset=utf-8",
        "Cache-Control: no-cache",
        "X-Accel-Buffering: no",
        f"{REQUEST_ID}: {request_id}",
        f"Date: {formatdate(usegmt=True)}",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    if not alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def is_chunked(request: web.BaseRequest) -> bool:
    return request.version >= HttpVersion11


def echoed_id(request: web.BaseRequest, own: str) -> str:
    """The client's X-Request-Id if it is short printable ASCII, else ours. It is only ever echoed."""
    given = request.headers.get(REQUEST_ID)
    if given and len(given) <= MAX_REQUEST_ID and given.isascii() and given.isprintable():
        return given
    return own


def not_found(what: str) -> RequestError:
    return RequestError(404, "invalid_request_error", "not_found", what)
