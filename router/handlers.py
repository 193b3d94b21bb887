"""The path of one completion, in order: read, tokenise, submit, write as tokens come, settle.

body --(held, bounded)--> prepare --> Dispatcher.submit --> sinks write --> done
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from aiohttp import web

from octavo.router import deadlines, notices
from octavo.router.answers import BUFFER_BYTES, Answer, Outlet, Stream, Whole
from octavo.router.bodies import Prepared
from octavo.router.cors import Cors
from octavo.router.frames import Frames, FrameWriter, Identity
from octavo.router.generation import Dispatcher, Job, RequestError, Sampling
from octavo.router.holding import Holding
from octavo.router.keys import Keys
from octavo.router.metrics import CUT, RouterMetrics
from octavo.router.openai import Ask, Kind
from octavo.router.refusals import timed_out
from octavo.router.response_frames import ResponseObject, ResponseWriter, WholeResponse
from octavo.router.responses import (
    JSON,
    REQUEST_ID,
    SERVER,
    EventStream,
    echoed_id,
    is_chunked,
    stream_head,
    unknown_model,
)
from octavo.router.texts import Loaded, Texts
from octavo.router.tokenizing import Operation

log = logging.getLogger(__name__)

SLOW_CLIENT_S = 60.0  # to take the end of an answer
T = TypeVar("T")
PREFIXES: dict[Kind, str] = {"completion": "cmpl-", "chat": "chatcmpl-", "response": "resp_"}


@dataclass(slots=True)
class Life:
    """Where the process is in its life, as all handlers see it."""

    draining: bool = False
    open: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the HTTP side of a process works with. served_name: in the API; empty: what the groups call the model.

    max_wait_s: for a group's files to come. keys: None: anybody may ask. strict: unknown fields are refused.
    """

    dispatcher: Dispatcher
    texts: Texts
    metrics: RouterMetrics
    life: Life
    served_name: str
    max_wait_s: float
    keys: Keys | None = None
    cors: Cors = field(default_factory=Cors)
    strict: bool = False


class Completions:
    """Answers the endpoints that take a body."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._holding = Holding()

    async def answer(
        self, request: web.BaseRequest, kind: Kind, headers: Mapping[str, str]
    ) -> tuple[web.StreamResponse, str]:
        """The response, and the code that metrics count it under. Raises RequestError before the first byte.

        headers: that every answer to this request carries.
        """
        loaded, prepared, begun, deadline = await self._read(request, lambda loaded, body: loaded.prepare(kind, body))
        ask = prepared.ask
        name = self._named(loaded, ask.model)
        notices.check_strict(ask.unknown, self.parts.strict, request.headers)
        identity = Identity(kind, PREFIXES[kind] + secrets.token_hex(12), int(time.time()), name)
        if ask.timeout_s is not None:
            deadline = min(deadline, begun + ask.timeout_s)
        headers = {**headers, **notices.warning(ask.unknown)}
        exchange = _Exchange(self, request, identity, loaded, prepared, begun, deadline, headers)
        return await (exchange.stream() if ask.stream else exchange.whole())

    async def tokenize(self, request: web.BaseRequest, operation: Operation) -> web.Response:
        """Of /tokenize and /detokenize. Raises RequestError."""
        loaded, tokenized, _, _ = await self._read(request, lambda loaded, body: loaded.pool.tokenize(operation, body))
        self._named(loaded, tokenized.model)
        notices.check_strict(tokenized.unknown, self.parts.strict, request.headers)
        headers = {
            **SERVER,
            REQUEST_ID: echoed_id(request, secrets.token_hex(12)),
            **notices.warning(tokenized.unknown),
        }
        return web.Response(body=tokenized.body, content_type=JSON, headers=headers)

    async def _read(
        self, request: web.BaseRequest, prepare: Callable[[Loaded, bytes], Awaitable[T]]
    ) -> tuple[Loaded, T, float, float]:
        """The model, what was made of the body, when that had come, and the deadline (monotonic seconds)."""
        limit_s = deadlines.header_s(request.headers)
        with self._holding.of(request) as held:
            body = await held.read()
            begun = asyncio.get_running_loop().time()
            if limit_s == math.inf:  # most requests: a timer costs as much as a short body's parsing
                loaded, made = await self._prepared(body, begun, prepare)
            else:
                async with deadlines.ending_at(begun + limit_s):
                    loaded, made = await self._prepared(body, begun, prepare)
        return loaded, made, begun, begun + limit_s

    async def _prepared(
        self, body: bytes, begun: float, prepare: Callable[[Loaded, bytes], Awaitable[T]]
    ) -> tuple[Loaded, T]:
        loaded = await self.parts.texts.current(begun + self.parts.max_wait_s)
        return loaded, await prepare(loaded, body)

    def _named(self, loaded: Loaded, model: str | None) -> str:
        """The name that is served. Raises RequestError 404 when a request has another."""
        name = self.parts.served_name or loaded.model.name
        if model is not None and model != name:
            raise unknown_model(model, name)
        return name

    def submit(self, answer: Answer, loaded: Loaded, prepared: Prepared, id: str, deadline: float) -> None:
        """One job a prompt. Raises RequestError when one is refused; the others are cancelled by the caller."""
        for index, prompt in enumerate(prepared.prompts):
            generation = answer.generation(partial(loaded.text.detokeniser, prompt), prepared.ask.stop)
            job = _job(prepared.ask, loaded, prompt, f"{id}-{index}", deadline)
            handle = self.parts.dispatcher.submit(job, generation)
            answer.handles.append(handle)
            if generation.over:
                handle.cancel()
            self.parts.metrics.tally.prompt_tokens += len(prompt) // 4


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request that may be answered now. deadline: monotonic seconds. headers: of the answer."""

    home: Completions
    request: web.BaseRequest
    identity: Identity
    loaded: Loaded
    prepared: Prepared
    begun: float
    deadline: float
    headers: Mapping[str, str]

    async def whole(self) -> tuple[web.StreamResponse, str]:
        is_response = self.identity.kind == "response"
        outlet = WholeResponse(self.identity, self._response()) if is_response else Whole(self.identity)
        error = await self._run(outlet)
        if error is not None:
            raise error
        headers = {**SERVER, REQUEST_ID: echoed_id(self.request, self.identity.id), **self.headers}
        return web.Response(body=outlet.body, content_type=JSON, headers=headers), "200"

    async def stream(self) -> tuple[web.StreamResponse, str]:
        transport = self.request.transport
        if transport is None:
            raise asyncio.CancelledError  # the client went while we tokenised
        chunked = is_chunked(self.request)
        alive = chunked and self.request.keep_alive and not self.home.parts.life.draining
        head = stream_head(echoed_id(self.request, self.identity.id), chunked, alive, self.headers)
        outlet = Stream(transport, head, chunked, self._frames(), self.home.parts.metrics.tally)
        error = await self._run(outlet)
        if error is not None and not outlet.begun:
            raise error
        if error is not None:
            log.warning("request %s: cut: %s", self.identity.id, error.message)
        if transport.get_write_buffer_size() > BUFFER_BYTES:
            await self._wait_for_client(transport)
        return EventStream(alive), CUT if error is not None else "200"

    def _frames(self) -> Frames:
        if self.identity.kind == "response":
            return ResponseWriter(self._response())
        return FrameWriter(self.identity, self.prepared.ask.include_usage)

    def _response(self) -> ResponseObject:
        sampling = _sampling(self.prepared.ask, self.loaded.text.sampling)
        used = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return ResponseObject(self.identity, {**(self.prepared.ask.echo or {}), **used})

    async def _run(self, outlet: Outlet) -> RequestError | None:
        """Until every token is written. A client that goes away cancels this task, and so its jobs."""
        tokens = sum(len(prompt) // 4 for prompt in self.prepared.prompts)
        answer = Answer(outlet, tokens, self.home.parts.metrics.tally, self._first_token)
        timer = self._timer(answer)
        try:
            self.home.submit(answer, self.loaded, self.prepared, self.identity.id, self.deadline)
            return await answer.done
        finally:
            answer.cancel()
            if timer is not None:
                timer.cancel()

    def _timer(self, answer: Answer) -> asyncio.TimerHandle | None:
        """Ends the answer at its deadline."""
        if self.deadline == math.inf:
            return None
        at = self.deadline + deadlines.QUEUE_FIRST_S
        return asyncio.get_running_loop().call_at(at, answer.failed, timed_out())

    def _first_token(self) -> None:
        self.home.parts.metrics.first_token.observe(asyncio.get_running_loop().time() - self.begun)

    async def _wait_for_client(self, transport: asyncio.Transport) -> None:
        try:
            async with asyncio.timeout(SLOW_CLIENT_S):
                await self.request.writer.drain()
        except TimeoutError:
            log.warning("request %s: the client does not read; connection closed", self.identity.id)
            transport.abort()


def _job(ask: Ask, loaded: Loaded, prompt: bytes, id: str, deadline: float) -> Job:
    room = loaded.model.context_length - len(prompt) // 4
    return Job(
        id=id,
        prompt=prompt,
        sampling=_sampling(ask, loaded.text.sampling),
        max_tokens=room if ask.max_tokens is None else ask.max_tokens,
        stop_ids=ask.stop_ids,
        ignore_eos=ask.ignore_eos,
        deadline=deadline,
        fingerprint=loaded.model.fingerprint,
    )


def _sampling(ask: Ask, default: Sampling) -> Sampling:
    """The request wins over the model's own defaults."""
    return Sampling(
        default.temperature if ask.temperature is None else ask.temperature,
        default.top_k if ask.top_k is None else ask.top_k,
        default.top_p if ask.top_p is None else ask.top_p,
        secrets.randbits(63) if ask.seed is None else ask.seed & (2**64 - 1),
    )
