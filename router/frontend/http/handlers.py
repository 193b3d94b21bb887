"""Requests with a body over HTTP: read it, take the path of all requests (`frontend/request_pipeline.py`), write the
answer."""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from octavo.router.answers.delta import AnswerWriter
from octavo.router.answers.formatters.chat import ChatFormatter
from octavo.router.answers.formatters.completions import CompletionFormatter
from octavo.router.answers.formatters.formatter import Formatter, Identity
from octavo.router.answers.formatters.response_object import ResponseObject
from octavo.router.answers.formatters.responses import ResponseFormatter
from octavo.router.answers.writers.bounds import BUFFER_BYTES
from octavo.router.answers.writers.event_stream_writer import EventStreamWriter
from octavo.router.answers.writers.json_writer import JsonWriter
from octavo.router.frontend import deadlines
from octavo.router.frontend.http.responses import (
    JSON,
    REQUEST_ID,
    SERVER,
    EventStream,
    echoed_id,
    is_chunked,
    stream_head,
)
from octavo.router.frontend.job_builder import AnswerForm
from octavo.router.frontend.request_pipeline import PreparedRequest, Services, answering, prepare, run, run_operation
from octavo.router.jobs.generation import RequestError
from octavo.router.metrics import CUT
from octavo.router.openai_api import unknown_field_warnings
from octavo.router.openai_api.openai import Kind
from octavo.router.text.tokenizing import Operation

log = logging.getLogger(__name__)

SLOW_CLIENT_S = 60.0  # to take the end of an answer
PREFIXES: dict[Kind, str] = {"completion": "cmpl-", "chat": "chatcmpl-", "response": "resp_"}


class Completions:
    """Answers the endpoints that take a body."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(
        self, request: web.BaseRequest, kind: Kind, headers: Mapping[str, str]
    ) -> tuple[web.StreamResponse, str]:
        """The response, and the code that metrics count it under. Raises RequestError before the first byte.

        headers: that every answer to this request carries.
        """
        limit_s = deadlines.header_s(request.headers)
        with self._services.body_buffer.of(request) as held:
            body = await held.read()
            prepared = await prepare(self._services, kind, body, _after(limit_s))
            del body
        unknown = prepared.encoded.request.unknown
        unknown_field_warnings.check_strict(unknown, self._services.strict, request.headers)
        created, headers = int(time.time()), {**headers, **unknown_field_warnings.warning(unknown)}

        async def answered(prepared: PreparedRequest) -> tuple[web.StreamResponse, str]:
            identity = Identity(kind, PREFIXES[kind] + prepared.id, created, prepared.name)
            exchange = _Exchange(self._services, request, identity, prepared, headers)
            return await (exchange.stream() if prepared.encoded.request.stream else exchange.whole())

        return await answering(self._services, prepared, answered)

    async def tokenize(self, request: web.BaseRequest, operation: Operation) -> web.Response:
        """Of /tokenize and /detokenize. Raises RequestError."""
        limit_s = deadlines.header_s(request.headers)
        with self._services.body_buffer.of(request) as held:
            body = await held.read()
            tokenized = await run_operation(self._services, operation, body, _after(limit_s))
            del body
        unknown_field_warnings.check_strict(tokenized.unknown, self._services.strict, request.headers)
        own = {
            REQUEST_ID: echoed_id(request, secrets.token_hex(12)),
            **unknown_field_warnings.warning(tokenized.unknown),
        }
        return web.Response(body=tokenized.body, content_type=JSON, headers={**SERVER, **own})


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request that may be answered now. headers: of the answer."""

    services: Services
    request: web.BaseRequest
    identity: Identity
    prepared: PreparedRequest
    headers: Mapping[str, str]

    async def whole(self) -> tuple[web.StreamResponse, str]:
        form = self.prepared.plan.form
        writer = JsonWriter(self._formatter(form))
        error = await self._run(writer, form)
        if error is not None:
            raise error
        headers = {**SERVER, REQUEST_ID: echoed_id(self.request, self.identity.id), **self.headers}
        body = writer.body() if form.details is None else await asyncio.to_thread(writer.body)
        return web.Response(body=body, content_type=JSON, headers=headers), "200"

    async def stream(self) -> tuple[web.StreamResponse, str]:
        transport = self.request.transport
        if transport is None:
            raise asyncio.CancelledError  # the client went while we tokenised
        chunked = is_chunked(self.request)
        alive = chunked and self.request.keep_alive and not self.services.state.draining
        head = stream_head(echoed_id(self.request, self.identity.id), chunked, alive, self.headers)
        form = self.prepared.plan.form
        writer = EventStreamWriter(transport, head, chunked, self._formatter(form), self.services.metrics.tally)
        error = await self._run(writer, form)
        if writer.has_left:
            raise asyncio.CancelledError
        if error is not None and not writer.begun:
            raise error
        if error is not None:
            log.warning("request %s: cut: %s", self.identity.id, error.message)
        if transport.get_write_buffer_size() > BUFFER_BYTES:
            await self._wait_for_client(transport)
        return EventStream(alive), CUT if error is not None else "200"

    def _formatter(self, form: AnswerForm) -> Formatter:
        if self.identity.kind == "response":
            return ResponseFormatter(self._response())
        make = ChatFormatter if self.identity.kind == "chat" else CompletionFormatter
        return make(self.identity, form.details, self.prepared.encoded.request.include_usage)

    def _response(self) -> ResponseObject:
        sampling = self.prepared.plan.sampling(0)
        used = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return ResponseObject(self.identity, {**(self.prepared.encoded.request.echo or {}), **used})

    async def _run(self, writer: AnswerWriter, form: AnswerForm) -> RequestError | None:
        """Until every token is written. A client that goes away cancels this task, and so its jobs."""
        with run(self.services, self.prepared, writer, self.identity.id, form) as answer:
            return await answer.done

    async def _wait_for_client(self, transport: asyncio.Transport) -> None:
        try:
            async with asyncio.timeout(SLOW_CLIENT_S):
                await self.request.writer.drain()
        except TimeoutError:
            log.warning("request %s: the client does not read; connection closed", self.identity.id)
            transport.abort()


def _after(seconds: float) -> float:
    """As monotonic time."""
    return math.inf if seconds == math.inf else asyncio.get_running_loop().time() + seconds
