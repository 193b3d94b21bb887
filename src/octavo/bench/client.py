"""One request to a server, and when each part of its answer came. Whatever goes wrong is an Answer with an error."""

import resource
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp

from octavo.bench.arithmetic.datasets import Request
from octavo.bench.arithmetic.metrics import Answer
from octavo.bench.arithmetic.protocol import (
    DONE,
    Api,
    BadEvent,
    Event,
    Events,
    Usage,
    event,
    first_model,
    message,
    whole,
)
from octavo.errors import OctavoError

TIMEOUT_S = 6 * 60 * 60.0
# What a server or the way to it can do to a request; ValueError: a name that no resolver can be asked for.
FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, BadEvent)
MANY = 1 << 20  # descriptors: where the system sets no bound


class Unreachable(OctavoError):
    """The server did not answer, or its answer is not of the OpenAI API."""


@dataclass(slots=True)
class StreamedAnswer:
    """The received part of a streamed answer; times of the monotonic clock."""

    sent: float
    chunks: list[float] = field(default_factory=list)
    last: float = 0.0
    pieces: list[str] = field(default_factory=list)
    usage: Usage | None = None
    finished: bool = False

    def add(self, streamed: Event, at: float) -> None:
        if streamed.usage is not None:
            self.usage = streamed.usage
        if not streamed.has_content:
            return
        self.last = at
        self.finished = self.finished or streamed.finished
        self.pieces.append(streamed.text)
        if streamed.tokens:
            self.chunks.append(at)

    def answer(self, request: Request, begin: float, error: str) -> Answer:
        said = self.usage or Usage(None, None)
        prompt = said.prompt if said.prompt is not None else request.prompt_tokens
        return Answer(
            start_s=self.sent - begin,
            ttft_s=self.chunks[0] - self.sent if self.chunks else 0.0,
            gaps_s=tuple(later - earlier for earlier, later in pairwise(self.chunks)),
            latency_s=max(0.0, self.last - self.sent),
            prompt_tokens=prompt or 0,
            output_tokens=said.output or 0,
            text="".join(self.pieces),
            error=error or ("" if self.chunks else "the stream ended without a token"),
        )


class Client:
    """Requests to one endpoint; an async context manager.

    base_url: http://host:port, without the endpoint's path. verify: the server's certificate. begin: moment of the
    monotonic clock that answers count from.
    """

    def __init__(self, base_url: str, endpoint: str, headers: Mapping[str, str], *, verify: bool = True) -> None:
        self._base_url = base_url
        self._url = base_url + endpoint
        self._headers = {"Content-Type": "application/json", **headers}
        self._ssl: ssl.SSLContext | bool = verify
        self.begin = time.perf_counter()

    async def __aenter__(self) -> "Client":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=60.0),
            headers=self._headers,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def first_model(self) -> str:
        """Raises Unreachable."""
        url = f"{self._base_url}/v1/models"
        try:
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=30)) as response:
                data = await response.read()
                if response.status != 200:
                    raise Unreachable(f"{url}: HTTP {response.status}: {message(data)}")
                return first_model(data)
        except FAULTS as error:
            raise Unreachable(f"{url}: {_reason(error)}") from error

    async def stream(self, api: Api, request: Request) -> Answer:
        """A streamed answer, with the time of each chunk; output_tokens 0 where the server does not say."""
        body = api.body(request.prompt, request.output_tokens, stream=True)
        streamed = StreamedAnswer(time.perf_counter())
        try:
            async with self._session.post(self._url, data=body) as response:
                await _accepted(response)
                error = await self._listen(response, streamed, api.chat)
        except FAULTS as problem:
            error = _reason(problem)
        return streamed.answer(request, self.begin, error)

    async def _listen(self, response: aiohttp.ClientResponse, streamed: StreamedAnswer, chat: bool) -> str:
        """Until the stream's end; "" or why it was not complete."""
        events, done = Events(), False
        async for data in response.content.iter_any():
            now = time.perf_counter()
            for one in events.feed(data):
                if one == DONE:
                    done = True
                elif one:
                    streamed.add(event(one, chat), now)
        done = done or events.feed(b"\n") == [DONE]  # some servers end without a line feed
        return "" if done or streamed.finished else "the stream was cut: neither a finish_reason nor [DONE]"

    async def whole(self, api: Api, request: Request) -> Answer:
        """An answer in one piece; it has no times but the latency."""
        body = api.body(request.prompt, request.output_tokens, stream=False)
        sent = time.perf_counter()
        start = sent - self.begin
        try:
            async with self._session.post(self._url, data=body) as response:
                await _accepted(response)
                text, usage = whole(await response.read())
        except FAULTS as problem:
            return Answer(start_s=start, error=_reason(problem))
        return Answer(
            start_s=start,
            latency_s=time.perf_counter() - sent,
            prompt_tokens=(usage.prompt if usage.prompt is not None else request.prompt_tokens) or 0,
            output_tokens=usage.output or 0,
            text=text,
        )


async def _accepted(response: aiohttp.ClientResponse) -> None:
    """Raises BadEvent with what the server says, where it refused."""
    if response.status != 200:
        said = message(await response.read()) or response.reason
        raise BadEvent(f"HTTP {response.status}: {said}")


def _reason(error: BaseException) -> str:
    """In one line, never empty: an error that the command prints."""
    if isinstance(error, BadEvent):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer in time ({type(error).__name__})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}" if str(error) else type(error).__name__


def allow_connections() -> None:
    """Each request under way is a file descriptor: take as many as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MANY if most == resource.RLIM_INFINITY else most, most))
