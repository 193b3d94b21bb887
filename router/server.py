"""The HTTP side of one router process: routes to handlers, errors to JSON, everything counted."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_log import AccessLogger

from octavo.router.generation import RequestError
from octavo.router.handlers import Completions
from octavo.router.holding import MAX_BODY_BYTES
from octavo.router.metrics import CLIENT_GONE, ENDPOINTS
from octavo.router.openai import Kind
from octavo.router.path import Parts, bug
from octavo.router.responses import REQUEST_ID, echoed_id, error_response, json_response, not_found

log = logging.getLogger(__name__)

IDLE_S = 75.0  # for the headers of a first or next request to come; load balancers give up after 60 s, so they go first
KINDS: dict[str, Kind] = {"/v1/completions": "completion", "/v1/chat/completions": "chat"}
Route = Callable[[web.BaseRequest], web.Response]


class HttpServer:
    """Serves requests by path. GETs answer at once; the two POSTs go through Completions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._completions = Completions(parts)
        self._routes: dict[str, Route] = {
            "/livez": lambda _: json_response({"status": "ok"}),
            "/routerz": self._routerz,
            "/readyz": self._readyz,
            "/health": self._readyz,
            "/v1/models": self._models,
        }

    def build(self, idle_s: float = IDLE_S) -> web.Server:
        """aiohttp's low-level server: no second routing, no middleware, handlers cancelled when a client goes.

        Its keep-alive time-out runs from the connection's first moment, and until the headers are whole.
        """
        loop = asyncio.get_running_loop()

        def request_factory(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            # Any: aiohttp's own types for these are private
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

        return web.Server(
            self.handle,
            request_factory=request_factory,
            handler_cancellation=True,
            access_log=None,
            access_log_class=AccessLogger,
            keepalive_timeout=idle_s,
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        kind = KINDS.get(path)
        if kind is not None and request.method == "POST":
            return await self._complete(request, path, kind)
        try:
            response = self._simple(request, path)
        except RequestError as error:
            response = error_response(error, echoed_id(request, secrets.token_hex(12)))
            if error.status == 405:
                response.headers["Allow"] = "POST" if kind is not None else "GET, HEAD"
        self._closing(response)
        if path not in ("/livez", "/routerz", "/readyz", "/health"):
            self._count(path, str(response.status))
        return response

    def _simple(self, request: web.BaseRequest, path: str) -> web.Response:
        route = self._routes.get(path)
        if route is None and path.startswith("/v1/models/"):
            route = self._model
        if route is None and path not in KINDS:
            raise not_found("no such path; the API is under /v1: completions, chat/completions, models")
        if route is None or request.method not in ("GET", "HEAD"):
            message = f"{request.method[:16]} is not allowed here"
            raise RequestError(405, "invalid_request_error", "method_not_allowed", message)
        return route(request)

    async def _complete(self, request: web.BaseRequest, path: str, kind: Kind) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        code = CLIENT_GONE
        self._parts.life.open += 1
        try:
            response, code = await self._answered(request, kind)
            if code == "200":
                self._parts.metrics.seconds.labels(ENDPOINTS[path]).observe(loop.time() - begun)
            return response
        finally:
            self._parts.life.open -= 1
            self._count(path, code)

    async def _answered(self, request: web.BaseRequest, kind: Kind) -> tuple[web.StreamResponse, str]:
        try:
            response, code = await self._completions.answer(request, kind)
        except RequestError as error:
            response, code = error_response(error, echoed_id(request, secrets.token_hex(12))), str(error.status)
        except Exception:  # a bug of ours: told as one, and the connection lives on
            own = secrets.token_hex(12)
            log.exception("request %s failed", own)
            response, code = error_response(bug(own), echoed_id(request, own)), "500"
        self._closing(response)
        return response, code

    def _closing(self, response: web.StreamResponse) -> None:
        """While draining, clients are asked to connect anew elsewhere."""
        if self._parts.life.draining:
            response.force_close()

    def _count(self, path: str, code: str) -> None:
        self._parts.metrics.requests.labels(ENDPOINTS.get(path, "other"), code).inc()

    def _routerz(self, request: web.BaseRequest) -> web.Response:
        if self._parts.life.draining:
            return json_response({"status": "draining"}, 503)
        if not self._parts.dispatcher.synced:
            return json_response({"status": "the list of groups is not known yet"}, 503)
        return json_response({"status": "ok"})

    def _readyz(self, request: web.BaseRequest) -> web.Response:
        if self._parts.ready:
            return json_response({"status": "ok"})
        return json_response({"status": "no group serves the model"}, 503)

    def _cards(self) -> list[dict[str, object]]:
        loaded = self._parts.texts.loaded
        name = self._parts.model_name
        if not name:
            return []
        card: dict[str, object] = {"id": name, "object": "model", "created": 0, "owned_by": "octavo"}
        if loaded is not None:
            card["max_model_len"] = loaded.model.context_length
        return [card]

    def _models(self, request: web.BaseRequest) -> web.Response:
        headers = {REQUEST_ID: echoed_id(request, secrets.token_hex(12))}
        return json_response({"object": "list", "data": self._cards()}, headers=headers)

    def _model(self, request: web.BaseRequest) -> web.Response:
        name = request.path.removeprefix("/v1/models/")
        for card in self._cards():
            if card["id"] == name:
                return json_response(card)
        raise RequestError(
            404, "invalid_request_error", "model_not_found", "no such model; see /v1/models", field="model"
        )
