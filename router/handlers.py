"""The path of one completion, in order: read, tokenise, submit, write as tokens come, settle.

body --(held, bounded)--> prepare --> Dispatcher.submit --> sinks write --> done
"""

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from octavo.router.answers import BUFFER_BYTES, Answer, Outlet, Stream, Whole
from octavo.router.bodies import Prepared
from octavo.router.frames import FrameWriter, Identity
from octavo.router.generation import Dispatcher, Job, RequestError, Sampling
from octavo.router.holding import Holding
from octavo.router.metrics import CUT, RouterMetrics
from octavo.router.openai import Ask, Kind
from octavo.router.parsed_answers import ParsedStream, ParsedWhole
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
from octavo.router.tokens import NO_MARKS

log = logging.getLogger(__name__)

SLOW_CLIENT_S = 60.0  # to take the end of an answer
PREFIXES: dict[Kind, str] = {"completion": "cmpl-", "chat": "chatcmpl-"}


@dataclass(slots=True)
class Life:
    """Where the process is in its life, as all handlers see it."""

    draining: bool = False
    open: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the HTTP side of a process works with. served_name: in the API; empty: what the groups call the model.

    max_wait_s: for a group's files to come.
    """

    dispatcher: Dispatcher
    texts: Texts
    metrics: RouterMetrics
    life: Life
    served_name: str
    max_wait_s: float


class Completions:
    """Answers /v1/completions and /v1/chat/completions."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._holding = Holding()

    async def answer(self, request: web.BaseRequest, kind: Kind) -> tuple[web.StreamResponse, str]:
        """The response, and the code that metrics count it under. Raises RequestError before the first byte."""
        loop = asyncio.get_running_loop()
        with self._holding.of(request) as held:
            body = await held.read()
            begun = loop.time()
            loaded = await self.parts.texts.current(begun + self.parts.max_wait_s)
            prepared = await loaded.prepare(kind, body)
            del body
        name = self.parts.served_name or loaded.model.name
        if prepared.ask.model is not None and prepared.ask.model != name:
            raise unknown_model(prepared.ask.model, name)
        identity = Identity(kind, PREFIXES[kind] + secrets.token_hex(12), int(time.time()), name)
        exchange = _Exchange(self, request, identity, loaded, prepared, begun)
        return await (exchange.stream() if prepared.ask.stream else exchange.whole())

    def submit(self, answer: Answer, loaded: Loaded, prepared: Prepared, id: str) -> None:
        """One job a prompt. Raises RequestError when one is refused; the others are cancelled by the caller."""
        marks = NO_MARKS if loaded.formats.parser(prepared) is None else loaded.formats.marks
        for index, prompt in enumerate(prepared.prompts):
            generation = answer.generation(partial(loaded.text.detokeniser, prompt, marks), prepared.ask.stop)
            handle = self.parts.dispatcher.submit(_job(prepared.ask, loaded, prompt, f"{id}-{index}"), generation)
            answer.handles.append(handle)
            if generation.over:
                handle.cancel()
            self.parts.metrics.tally.prompt_tokens += len(prompt) // 4


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request that may be answered now."""

    home: Completions
    request: web.BaseRequest
    identity: Identity
    loaded: Loaded
    prepared: Prepared
    begun: float

    async def whole(self) -> tuple[web.StreamResponse, str]:
        outlet = Whole(self.identity)
        parser = self.loaded.formats.parser(self.prepared)
        error = await self._run(outlet if parser is None else ParsedWhole(outlet, parser))
        if error is not None:
            raise error
        headers = {**SERVER, REQUEST_ID: echoed_id(self.request, self.identity.id)}
        return web.Response(body=outlet.body, content_type=JSON, headers=headers), "200"

    async def stream(self) -> tuple[web.StreamResponse, str]:
        transport = self.request.transport
        if transport is None:
            raise asyncio.CancelledError  # the client went while we tokenised
        chunked = is_chunked(self.request)
        alive = chunked and self.request.keep_alive and not self.home.parts.life.draining
        head = stream_head(echoed_id(self.request, self.identity.id), chunked, alive)
        frames = FrameWriter(self.identity, self.prepared.ask.include_usage)
        outlet = Stream(transport, head, chunked, frames, self.home.parts.metrics.tally)
        parser = self.loaded.formats.parser(self.prepared)
        error = await self._run(outlet if parser is None else ParsedStream(outlet, parser))
        if error is not None and not outlet.begun:
            raise error
        if error is not None:
            log.warning("request %s: cut: %s", self.identity.id, error.message)
        if transport.get_write_buffer_size() > BUFFER_BYTES:
            await self._wait_for_client(transport)
        return EventStream(alive), CUT if error is not None else "200"

    async def _run(self, outlet: Outlet) -> RequestError | None:
        """Until every token is written. A client that goes away cancels this task, and so its jobs."""
        tokens = sum(len(prompt) // 4 for prompt in self.prepared.prompts)
        answer = Answer(outlet, tokens, self.home.parts.metrics.tally, self._first_token)
        try:
            self.home.submit(answer, self.loaded, self.prepared, self.identity.id)
            return await answer.done
        finally:
            answer.cancel()

    def _first_token(self) -> None:
        self.home.parts.metrics.first_token.observe(asyncio.get_running_loop().time() - self.begun)

    async def _wait_for_client(self, transport: asyncio.Transport) -> None:
        try:
            async with asyncio.timeout(SLOW_CLIENT_S):
                await self.request.writer.drain()
        except TimeoutError:
            log.warning("request %s: the client does not read; connection closed", self.identity.id)
            transport.abort()


def _job(ask: Ask, loaded: Loaded, prompt: bytes, id: str) -> Job:
    room = loaded.model.context_length - len(prompt) // 4
    return Job(
        id=id,
        prompt=prompt,
        sampling=_sampling(ask, loaded.text.sampling),
        max_tokens=room if ask.max_tokens is None else ask.max_tokens,
        stop_ids=ask.stop_ids,
        ignore_eos=ask.ignore_eos,
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
