"""Streams of completions over raw connections, with the time of every frame: clients of serve.py and loads.py.

    Clients.run(jobs) -> what came back, job by job

A job goes out on a connection of its own, at its time; all times are of the system's monotonic clock, so that several
processes' go together. A process (`python streams.py`, or another script that calls serve_share) reads its share as
JSON, says that it is ready, begins at the moment that it is sent, and writes the answers as JSON.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvloop

FRAME, DONE, USAGE, ERROR = b"data: {", b"data: [DONE]", b'"completion_tokens":', b'data: {"error"'
LAST_CHUNK = b"\r\n0\r\n\r\n"  # of a body: a stream that breaks off ends without DONE
TIMEOUT_S = 540.0


@dataclass(frozen=True, slots=True)
class Job:
    """at_s, until_s: from the common beginning; one that is not over by until_s is given up. lane: jobs of one go one
    after the other; None: whatever else is under way."""

    prompt: list[int]
    new_tokens: int
    at_s: float = 0.0
    until_s: float = TIMEOUT_S
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """sent_s, frames_s: from the common beginning. tokens: by the server's count. complete: the stream ended well."""

    sent_s: float
    frames_s: list[float]
    tokens: int
    complete: bool
    error: str = ""


class Stream(asyncio.Protocol):
    """One request. Frames are counted, not parsed, but for the last, which holds the usage."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.frames: list[float] = []
        self.head = b""
        self.tail = b""
        self.sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self.sent = time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self.head:
            self.head = data[:600]
        self.frames.extend([now] * data.count(FRAME))
        self.tail = (self.tail + data)[-1500:]
        if DONE in self.tail or self.tail.endswith(LAST_CHUNK) or not self.head.startswith(b"HTTP/1.1 200"):
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def answer(self, begin: float) -> Answer:
        complete = DONE in self.tail
        frames = [round(at - begin, 6) for at in self.frames]
        tokens = 0
        if USAGE in self.tail:  # its frame has no token
            tokens = int(self.tail.rpartition(USAGE)[2].lstrip().split(b",")[0].split(b"}")[0])
            frames.pop()
        error = "" if self.head.startswith(b"HTTP/1.1 200") else self.head.decode(errors="replace")
        if ERROR in self.tail:
            error = self.tail[self.tail.rindex(ERROR) :].decode(errors="replace")
            frames.pop()
        return Answer(round(self.sent - begin, 6), frames, tokens, complete, error)


def _request(job: Job, model: str) -> bytes:
    body = json.dumps(
        {
            "model": model, "prompt": job.prompt, "max_tokens": job.new_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }
    ).encode()  # fmt: skip
    head = "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _prepare(job: Job, model: str, port: int) -> "Ask":
    return partial(_one, job, _request(job, model), port)


async def _one(job: Job, request: bytes, port: int, begin: float) -> Answer:
    await asyncio.sleep(begin + job.at_s - time.monotonic())
    try:
        _, stream = await asyncio.get_running_loop().create_connection(Stream, "127.0.0.1", port)
    except OSError as error:
        return Answer(job.at_s, [], 0, False, str(error))
    stream.send(request)
    await asyncio.wait({stream.ended}, timeout=begin + job.until_s - time.monotonic())
    stream.close()
    return stream.answer(begin)


Ask = Callable[[float], Awaitable[Answer]]  # sends a job's request, given the common beginning


async def serve_share(prepare: Callable[[Job, str, int], Ask]) -> None:
    """Be a client process: read a share of jobs, and write what came back. prepare: of a job, a model, and a port,
    before the beginning."""
    share = json.loads(sys.stdin.readline())
    lanes: dict[object, list[tuple[int, Ask]]] = {}
    for number, fields in enumerate(share["jobs"]):
        job = Job(**fields)
        lane = ("alone", number) if job.lane is None else job.lane
        lanes.setdefault(lane, []).append((number, prepare(job, share["model"], share["port"])))
    print("ready", flush=True)
    begin = float(sys.stdin.readline())

    async def one_by_one(asks: list[tuple[int, Ask]]) -> list[tuple[int, Answer]]:
        return [(number, await ask(begin)) for number, ask in asks]

    done = await asyncio.gather(*map(one_by_one, lanes.values()))
    answers = dict(pair for pairs in done for pair in pairs)
    print(json.dumps([asdict(answers[number]) for number in sorted(answers)]), flush=True)


class Clients:
    """Client processes that share the jobs between them. script: what they run; it calls serve_share."""

    def __init__(self, port: int, processes: int, model: str = "local", script: Path = Path(__file__)) -> None:
        self._port, self._processes, self._model, self._script = port, processes, model, script

    def run(self, jobs: Sequence[Job]) -> list[Answer]:
        """The answers, in the order of the jobs."""
        shares: list[list[int]] = [[] for _ in range(self._processes)]
        for number, job in enumerate(jobs):
            shares[(number if job.lane is None else job.lane) % self._processes].append(number)
        shares = [share for share in shares if share]
        clients = [self._start([jobs[number] for number in share]) for share in shares]
        try:
            return self._collected(clients, shares)
        finally:
            for client in clients:
                client.kill()
                client.wait()

    def _collected(self, clients: "list[subprocess.Popen[str]]", shares: list[list[int]]) -> list[Answer]:
        for client in clients:
            assert client.stdout is not None and client.stdout.readline() == "ready\n"
        begin = time.monotonic() + 0.2
        for client in clients:
            self._say(client, f"{begin}\n")
        answers: dict[int, Answer] = {}
        for client, share in zip(clients, shares, strict=True):
            answers.update(zip(share, self._collect(client), strict=True))
        return [answers[number] for number in sorted(answers)]

    def _start(self, share: list[Job]) -> "subprocess.Popen[str]":
        client = subprocess.Popen(
            [sys.executable, str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        share_json: dict[str, Any] = {"port": self._port, "model": self._model, "jobs": [asdict(job) for job in share]}
        self._say(client, json.dumps(share_json) + "\n")
        return client

    @staticmethod
    def _say(client: "subprocess.Popen[str]", text: str) -> None:
        assert client.stdin is not None
        client.stdin.write(text)
        client.stdin.flush()

    @staticmethod
    def _collect(client: "subprocess.Popen[str]") -> list[Answer]:
        out, _ = client.communicate(timeout=TIMEOUT_S + 30)
        return [Answer(**answer) for answer in json.loads(out)]


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="A client process of serve.py or loads.py, which tells it everything."
    ).parse_args()
    uvloop.run(serve_share(_prepare))
