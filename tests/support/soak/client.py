"""Sends requests and keeps what came of each."""

import asyncio
import json
import time
from typing import Any

import aiohttp
from support.patience import calm_s
from support.soak.asks import Ask
from support.soak.checker import GRACE_S
from support.soak.history import DONE, ERROR, Entry, Part, Received

PAUSES, PAUSE_S = 20, 0.2  # of a client that reads slowly
HELD_UP_S = 0.3  # of the event loop: below that it is not noted


class Clock:
    """Seconds since the soak began, and how long this process itself was held up."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._held: list[tuple[float, float]] = []

    def now_s(self) -> float:
        return time.monotonic() - self._begun_s

    async def watch(self) -> None:
        while True:
            begun_s = self.now_s()
            await asyncio.sleep(0.1)
            if (held_s := self.now_s() - begun_s - 0.1) > HELD_UP_S:
                self._held.append((self.now_s(), held_s))

    def held_s(self, begun_s: float, ended_s: float) -> float:
        return sum(held_s for at_s, held_s in self._held if begun_s <= at_s <= ended_s + held_s)


class Client:
    """patience_s: how long after its deadline and the grace period a request is given up."""

    def __init__(self, session: aiohttp.ClientSession, clock: Clock, patience_s: float) -> None:
        self._session, self._clock, self._patience_s = session, clock, patience_s
        self._sent = 0

    async def send(self, ask: Ask) -> Entry:
        self._sent += 1
        number, received = self._sent, Received()
        begun_s, calm_begun_s = self._clock.now_s(), calm_s()
        paused_s = 0.0
        try:
            async with asyncio.timeout(ask.deadline_s + GRACE_S + self._patience_s):
                paused_s = await self._exchange(ask, f"soak-{number}", received)
        except TimeoutError:
            received.given_up = True
        except (aiohttp.ClientError, OSError) as error:
            received.broken = f"{type(error).__name__}: {error}"[:200]
        ended_s, calm_ended_s = self._clock.now_s(), calm_s()
        lag_s = paused_s + self._clock.held_s(begun_s, ended_s)
        return Entry(number, ask, received, begun_s, ended_s, calm_ended_s - calm_begun_s, lag_s)

    async def _exchange(self, ask: Ask, name: str, received: Received) -> float:
        """Seconds that the client itself paused."""
        data = ask.body if isinstance(ask.body, bytes) else json.dumps(ask.body).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": name}
        async with self._session.post(ask.path, data=data, headers=headers) as answer:
            received.status = answer.status
            if answer.headers.get("X-Request-Id") != name:
                received.malformed.append(f"X-Request-Id is {answer.headers.get('X-Request-Id')}, not {name}")
            if answer.status in (429, 503) and "Retry-After" not in answer.headers:
                received.malformed.append(f"{answer.status} without Retry-After")
            if answer.status == 200 and ask.stream:
                return await _read_stream(answer, ask, received)
            body = _json(await answer.read(), received)
            if answer.status == 200:
                _take(body, received, "message")
            else:
                _take_error(body, received)
        return 0.0


async def _read_stream(answer: aiohttp.ClientResponse, ask: Ask, received: Received) -> float:
    rest, count, paused_s = b"", 0, 0.0
    async for data in answer.content.iter_any():
        if ask.pauses and paused_s < PAUSES * PAUSE_S:
            await asyncio.sleep(PAUSE_S)
            paused_s += PAUSE_S
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            _take_event(event, received)
        count += len(events)
        if ask.leave_after is not None and count >= ask.leave_after and not received.endings:
            received.left = True
            answer.close()
            return paused_s
    if rest.strip():
        received.malformed.append(f"half an event at the end: {rest[:100]!r}")
    return paused_s


def _take_event(event: bytes, received: Received) -> None:
    if received.endings:
        received.malformed.append(f"an event after the end: {event[:100]!r}")
    if not event.startswith(b"data: "):
        received.malformed.append(f"not a data event: {event[:100]!r}")
    elif event == b"data: [DONE]":
        received.endings.append(DONE)
    elif isinstance(body := _json(event[6:], received), dict) and "error" in body:
        received.endings.append(ERROR)
        _take_error(body, received)
    else:
        _take(body, received, "delta")


def _json(data: bytes, received: Received) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        received.malformed.append(f"not JSON: {data[:200]!r}")
        return {}


def _take_error(body: Any, received: Received) -> None:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not {"message", "type", "param", "code"} <= set(error):
        received.malformed.append(f"not an error object: {str(body)[:200]}")
        return
    received.code, received.message = str(error["code"]), str(error["message"])


def _take(body: Any, received: Received, chat: str) -> None:
    """chat: where a chat's choice has its text, whole or streamed."""
    for choice in body.get("choices", ()):
        part = received.parts.setdefault(choice["index"], Part())
        if part.finish:
            received.malformed.append(f"choice {choice['index']} goes on after its finish reason")
        said = choice.get(chat) or {}
        part.text += choice.get("text") or said.get("content") or ""
        part.ids += choice.get("token_ids") or []
        scores = choice.get("logprobs") or {}
        part.logprobs += scores.get("token_logprobs") or [one["logprob"] for one in scores.get("content") or ()]
        if choice.get("finish_reason"):
            part.finish.append(choice["finish_reason"])
    if body.get("usage"):
        received.usage.append(body["usage"])
