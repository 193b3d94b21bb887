"""The HTTP side of one router process: routes to handlers, errors to JSON, everything counted."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from aiohttp import web
from aiohttp.web_log import AccessLogger

from octavo import __version__
from octavo.router.api_document import routes
from octavo.router.api_document.openapi import document
from octavo.router.api_document.routes import ONE_MODEL, Page, Route
from octavo.router.frontend.body_buffer import MAX_BODY_BYTES
from octavo.router.frontend.http.connections import MAX_HEADERS, MAX_LINE_BYTES, Connections
from octavo.router.frontend.http.handlers import Completions
from octavo.router.frontend.http.responses import (
    JSON,
    REQUEST_ID,
    EventStream,
    echoed_id,
    error_response,
    json_response,
    no_content,
    not_found,
)
from octavo.router.frontend.request_pipeline import Services, internal_error
from octavo.router.jobs.generation import RequestError
from octavo.router.jobs.reachability import CUT_OFF_S
from octavo.router.metrics import CLIENT_GONE

log = logging.getLogger(__name__)

IDLE_S = 75.0  # for the headers of a first or next request to come; load balancers give up after 60 s, so they go first


class HttpServer:
    """Serves requests by path. GETs answer at once; POSTs go through Completions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._completions = Completions(services)
        self._document = b""
        self._pages: Mapping[Page, Callable[[web.BaseRequest], web.Response]] = {
            "livez": lambda _: json_response({"status": "ok"}),
            "routerz": self._routerz,
            "readyz": self._readyz,
            "version": lambda _: json_response({"version": __version__}),
            "openapi": self._openapi,
            "models": self._models,
            "model": self._model,
        }

    def build(self, idle_s: float = IDLE_S, most_connections: int = 0) -> Connections:
        """aiohttp's low-level server: no second routing, no middleware, handlers cancelled when a client goes.

        Its keep-alive time-out runs from the connection's first moment, and until the headers are whole.
        """
        loop = asyncio.get_running_loop()

        def request_factory(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            # Any: aiohttp's own types for these are private
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

        return Connections(
            self.handle,
            lambda status: self._count(None, str(status)),
            most_connections,
            request_factory=request_factory,
            handler_cancellation=True,
            access_log=None,
            access_log_class=AccessLogger,
            keepalive_timeout=idle_s,
            auto_decompress=False,
            max_headers=MAX_HEADERS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = self._services.cors.headers(request.headers)
        response = await self._routed(request, headers)
        if headers and not isinstance(response, EventStream):
            response.headers.update(headers)
        if self._services.state.draining:
            response.force_close()  # clients are asked to reconnect to another process
        return response

    async def _routed(self, request: web.BaseRequest, headers: Mapping[str, str]) -> web.StreamResponse:
        preflight = self._services.cors.preflight(request.method, request.headers)
        if preflight is not None:
            return no_content(preflight)
        path = request.path
        route = routes.find(path)
        try:
            if self._services.keys is not None and (route is None or not route.is_open):
                self._services.keys.check(request.headers.get("Authorization"))
            if route is None:
                raise not_found("no such path; the API is under /v1, and /openapi.json describes it")
            if request.method not in route.methods:
                message = f"{request.method[:16]} is not allowed here"
                raise RequestError(405, "invalid_request_error", "method_not_allowed", message)
            if route.page is None:
                return await self._complete(request, route, headers)
            response = self._pages[route.page](request)
            if not route.is_probe:
                response.headers[REQUEST_ID] = echoed_id(request, secrets.token_hex(12))
        except RequestError as error:
            response = error_response(error, echoed_id(request, secrets.token_hex(12)))
            if error.status == 405 and route is not None:
                response.headers["Allow"] = ", ".join(route.methods)
        if route is None or not route.is_probe:
            self._count(route, str(response.status))
        return response

    async def _complete(self, request: web.BaseRequest, route: Route, headers: Mapping[str, str]) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        code = CLIENT_GONE
        self._services.state.open += 1
        try:
            response, code = await self._answered(request, route, headers)
            if code == "200":
                self._services.metrics.observe(route.label, loop.time() - begun)
            return response
        finally:
            self._services.state.open -= 1
            self._count(route, code)

    async def _answered(
        self, request: web.BaseRequest, route: Route, headers: Mapping[str, str]
    ) -> tuple[web.StreamResponse, str]:
        try:
            if route.asks == "tokenize_json" or route.asks == "detokenize_json":
                return await self._completions.tokenize(request, route.asks), "200"
            assert route.asks is not None, "a route that is no page has a body"
            return await self._completions.answer(request, route.asks, headers)
        except RequestError as error:
            return error_response(error, echoed_id(request, secrets.token_hex(12))), str(error.status)
        except Exception:  # a bug of ours: answered 500, and the connection goes on
            own = secrets.token_hex(12)
            log.exception("request %s failed", own)
            return error_response(internal_error(own), echoed_id(request, own)), "500"

    def _count(self, route: Route | None, code: str) -> None:
        self._services.metrics.count("other" if route is None else route.label, code)

    def _routerz(self, request: web.BaseRequest) -> web.Response:
        if self._services.state.draining:
            return json_response({"status": "draining"}, 503)
        if not self._services.dispatcher.synced:
            return json_response({"status": "the list of groups is not known yet"}, 503)
        if self._services.dispatcher.reachability.is_cut_off:
            status = f"no stream to a group that serves, or no answer about them, for {CUT_OFF_S:.0f} s or more"
            return self._health_response(status, 503)
        return self._health_response("ok", 200)

    def _readyz(self, request: web.BaseRequest) -> web.Response:
        if self._services.ready:
            return self._health_response("ok", 200)
        if self._services.lacks_keys:
            return self._health_response("no API key is valid: every request is refused", 503)
        return self._health_response("no group serves the model", 503)

    def _health_response(self, status: str, code: int) -> web.Response:
        """With the listed groups that this process has no stream to, and what is wrong with the API keys."""
        page: dict[str, object] = {"status": status, "groups": self._services.dispatcher.reachability.to_json()}
        if self._services.key_file is not None:
            page["keys"] = self._services.key_file.to_json()
        return json_response(page, code)

    def _openapi(self, request: web.BaseRequest) -> web.Response:
        self._document = self._document or orjson.dumps(document(self._services.keys is not None))
        return web.Response(body=self._document, content_type=JSON)

    def _cards(self) -> list[dict[str, object]]:
        cards: list[dict[str, object]] = []
        for name, context_length in self._services.cards.items():
            card: dict[str, object] = {"id": name, "object": "model", "created": 0, "owned_by": "octavo"}
            cards.append(card | ({"max_model_len": context_length} if context_length else {}))
        return cards

    def _models(self, request: web.BaseRequest) -> web.Response:
        return json_response({"object": "list", "data": self._cards()})

    def _model(self, request: web.BaseRequest) -> web.Response:
        name = request.path.removeprefix(ONE_MODEL)
        for card in self._cards():
            if card["id"] == name:
                return json_response(card)
        raise RequestError(
            404, "invalid_request_error", "model_not_found", "no such model; see /v1/models", field="model"
        )
