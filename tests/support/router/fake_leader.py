"""A leader without an engine: real gRPC, scripted tokens, and the ways in which a real one fails.

In a test: `async with serving(Script(), address) as leader: ...`. As a process:

    python tests/support/router/fake_leader.py --serve unix:/tmp/x.sock --interval 0.01 --tokenizer DIR --log FILE

A request gets the script's ids over and over until max_tokens, one a tick (`interval_s`), or as fast as the router
reads (0). SIGTERM drains, then exits; SIGKILL is death; SIGSTOP is silence.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
import uuid
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from octavo.proto.v1 import engine_pb2, engine_pb2_grpc
from octavo.release import PROTOCOL
from octavo.worker.messages.request import FEATURES

MESSAGE_BYTES = 64 << 20
OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.so_reuseport", 0),
)
NO_TOKEN = 0xFFFFFFFF
BEAT_S = 1.0
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class Script:
    """ids: given in turn; with `ends`, once, and then the model has stopped.

    credit: uncached prompt tokens granted beyond what was seen; 0: none at first. slots: requests that it runs at once;
    0: any number. With slots it grants one token while one is free: a request at a time.
    """

    ids: tuple[int, ...] = tuple(range(100, 200))
    ends: bool = False
    interval_s: float = 0.0
    credit: int = 100_000
    slots: int = 0
    digest: str = "model-a"
    revision: str = "revision-1"
    served_name: str = "fake"
    context_length: int = 8192
    tokenizer: Path | None = None
    service_uid: str = ""
    protocol: int = PROTOCOL
    release: str = "1.2.3"
    features: tuple[str, ...] = FEATURES


@dataclass(slots=True)
class Running:
    """A request under way. position: ids given."""

    submit: engine_pb2.Submit
    received: float
    position: int = 0


@dataclass(eq=False)
class Stream:
    """One router's Serve stream."""

    router: str
    running: dict[int, Running] = field(default_factory=dict)
    seen: int = 0
    urgent: list[engine_pb2.FromEngine] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def post(self, message: engine_pb2.FromEngine) -> None:
        self.urgent.append(message)
        self.wake.set()


class FakeLeader(engine_pb2_grpc.EngineServicer):
    """Switches may be turned at any time; what happened is in the lists."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.incarnation = uuid.uuid4().hex
        self.credit = script.credit
        self.holding = False  # take requests, give no tokens
        self.is_draining = False
        self.refuse: engine_pb2.Rejected | None = None  # answer each Submit with this
        self.fail_at: int | None = None  # FAILED instead of this position
        self.heard = 0  # messages, of any kind
        self.submits: list[engine_pb2.Submit] = []
        self.cancels: list[int] = []
        self.streams: list[Stream] = []
        self.emissions: list[tuple[int, float, float]] = []  # seed, received, first token handed to gRPC

    @property
    def under_way(self) -> int:
        return sum(len(stream.running) for stream in self.streams)

    def grant(self, tokens: int) -> None:
        """Change the credit and tell every router."""
        self.credit = tokens
        for stream in self.streams:
            stream.post(engine_pb2.FromEngine())

    def resume(self) -> None:
        self.holding = False
        for stream in self.streams:
            stream.wake.set()

    async def withdraw(self, ask: Callable[[], Awaitable[object]]) -> None:
        """No credit from now on, and the router has heard it: in the answer to `ask`, a request that it has begun."""
        before, self.holding = len(self.submits), True
        answer = asyncio.ensure_future(ask())
        while len(self.submits) == before and not answer.done():
            await asyncio.sleep(0.01)
        self.credit = 0
        self.resume()
        await answer

    def drain(self) -> None:
        """Take nothing new, finish what is under way."""
        self.is_draining = True
        for stream in self.streams:
            stream.post(engine_pb2.FromEngine(draining=engine_pb2.Draining()))

    async def Serve(self, requests, context):  # type: ignore[no-untyped-def]  # as generated
        hello = await anext(requests)
        if hello.hello.service_uid != self.script.service_uid:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another service's router")
        stream = Stream(hello.hello.router)
        self.streams.append(stream)
        reading = asyncio.ensure_future(self._read(requests, stream))
        try:
            await context.write(self._credited(engine_pb2.FromEngine(welcome=self._welcome()), stream))
            if self.is_draining:
                stream.post(engine_pb2.FromEngine(draining=engine_pb2.Draining()))
            await self._emit(context, stream)
        finally:
            reading.cancel()
            self.streams.remove(stream)

    async def Files(self, request, context):  # type: ignore[no-untyped-def]  # as generated
        names = [name for name in FILES if self.script.tokenizer and (self.script.tokenizer / name).exists()]
        for name in names:
            data = (self.script.tokenizer / name).read_bytes()  # type: ignore[operator]  # names is empty without it
            for start in range(0, len(data), 1 << 20):
                chunk = data[start : start + (1 << 20)]
                yield engine_pb2.FileChunk(name=name, data=chunk, digest=self.script.digest)
        if not names:
            yield engine_pb2.FileChunk(name="config.json", data=b"{}", digest=self.script.digest)

    async def _read(self, requests: AsyncIterator[engine_pb2.FromRouter], stream: Stream) -> None:
        async for first in requests:
            for message in (first, *first.more):
                self._hear(message, stream)

    def _hear(self, message: engine_pb2.FromRouter, stream: Stream) -> None:
        self.heard += 1
        kind = message.WhichOneof("kind")
        if kind == "submit":
            self._take(message.submit, stream)
        elif kind == "cancel":
            self.cancels.append(message.cancel.number)
            stream.running.pop(message.cancel.number, None)

    def _take(self, submit: engine_pb2.Submit, stream: Stream) -> None:
        assert submit.number == stream.seen + 1, "numbers rise by one"
        stream.seen = submit.number
        self.submits.append(submit)
        refusal = self.refuse
        if refusal is None and self.is_draining:
            refusal = engine_pb2.Rejected(code=engine_pb2.Rejected.UNAVAILABLE, message="draining")
        if refusal is not None:
            answer = engine_pb2.FromEngine(rejected=refusal)
            answer.rejected.number = submit.number
            stream.post(answer)
            return
        stream.running[submit.number] = Running(submit, time.monotonic())
        if self.script.slots:
            stream.urgent.append(engine_pb2.FromEngine())  # what it has left
        stream.wake.set()

    async def _emit(self, context, stream: Stream) -> None:  # type: ignore[no-untyped-def]
        """Steps while something runs; else a beat a second."""
        tick = time.monotonic()
        while not (self.is_draining and not stream.running and not stream.urgent):
            while stream.urgent:
                await context.write(self._credited(stream.urgent.pop(0), stream))
            if not stream.running or self.holding:
                if not await self._woken(stream):
                    await context.write(self._credited(engine_pb2.FromEngine(), stream))
                tick = time.monotonic()
                continue
            if self.script.interval_s:
                tick = max(tick + self.script.interval_s, time.monotonic() - self.script.interval_s)
                await asyncio.sleep(tick - time.monotonic())
            message = self._credited(engine_pb2.FromEngine(output=self._step(stream)), stream)
            await context.write(message)

    async def _woken(self, stream: Stream) -> bool:
        try:
            async with asyncio.timeout(BEAT_S):
                await stream.wake.wait()
        except TimeoutError:
            return False
        stream.wake.clear()
        return True

    def _step(self, stream: Stream) -> engine_pb2.StepOutput:
        """One row for each running request."""
        numbers, ids, finishes, cached = array("I"), array("I"), bytearray(), array("I")
        scores: list[engine_pb2.Scores] = []
        script_ids, now = self.script.ids, time.monotonic()
        for number, running in list(stream.running.items()):
            if running.position == 0:
                self.emissions.append((running.submit.sampling.seed, running.received, now))
            failed = self.fail_at is not None and running.position >= self.fail_at
            stopped = self.script.ends and running.position + 1 == len(script_ids)
            last = stopped or running.position + 1 >= running.submit.limits.max_tokens
            end = engine_pb2.STOP if stopped else engine_pb2.LENGTH
            numbers.append(number)
            ids.append(NO_TOKEN if failed else script_ids[running.position % len(script_ids)])
            finishes.append(engine_pb2.FAILED if failed else end if last else engine_pb2.NOT_FINISHED)
            cached.append(0)
            if running.submit.sampling.HasField("logprobs") and not failed:
                scores.append(engine_pb2.Scores(row=len(ids) - 1, tokens=_scores(ids[-1], running.submit)))
            running.position += 1
            if failed or last:
                del stream.running[number]
        return engine_pb2.StepOutput(
            numbers=numbers.tobytes(),
            ids=ids.tobytes(),
            finishes=bytes(finishes),
            cached=cached.tobytes(),
            scores=scores,
        )

    def _welcome(self) -> engine_pb2.Welcome:
        return engine_pb2.Welcome(
            incarnation=self.incarnation,
            digest=self.script.digest,
            served_name=self.script.served_name,
            context_length=self.script.context_length,
            block_size=16,
            revision=self.script.revision,
            features=self.script.features,
            protocol=self.script.protocol,
            release=self.script.release,
        )

    def _credited(self, message: engine_pb2.FromEngine, stream: Stream) -> engine_pb2.FromEngine:
        load = engine_pb2.Load(running=self.under_way, total_blocks=1000)
        slots = self.script.slots
        tokens = min(self.credit, int(self.under_way < slots)) if slots else self.credit
        message.credit.CopyFrom(engine_pb2.Credit(seen=stream.seen, tokens=tokens, load=load))
        return message


def _scores(token: int, submit: engine_pb2.Submit) -> bytes:
    """The likeliest token with -0.5, and after it the tokens with the next ids."""
    top = submit.sampling.logprobs
    ids = array("I", [1, token, *range(token, token + top)])
    return ids.tobytes() + array("f", [-0.5, *(-0.5 - at for at in range(top))]).tobytes()


@asynccontextmanager
async def serving(script: Script, address: str, *, holding: bool = False) -> AsyncIterator[FakeLeader]:
    """A leader at `address` until the block ends; then its streams are cut at once, as by kill -9."""
    leader = FakeLeader(script)
    leader.holding = holding
    async with listening(leader, address):
        yield leader


@asynccontextmanager
async def listening(leader: FakeLeader, address: str) -> AsyncIterator[None]:
    """The same with a leader of the caller's own."""
    server = await start(leader, address)
    try:
        yield
    finally:
        await server.stop(0)


async def start(leader: FakeLeader, address: str) -> grpc.aio.Server:
    server = grpc.aio.server(options=OPTIONS)
    engine_pb2_grpc.add_EngineServicer_to_server(leader, server)
    server.add_insecure_port(address)
    await server.start()
    return server


async def _main(arguments: argparse.Namespace) -> None:
    ids = tuple(json.loads(arguments.ids)) if arguments.ids else Script().ids
    script = Script(
        ids=ids, interval_s=arguments.interval, tokenizer=arguments.tokenizer, served_name=arguments.served_name,
        slots=arguments.slots, digest=arguments.digest, revision=arguments.digest,
    )  # fmt: skip
    leader = FakeLeader(script)
    server = await start(leader, arguments.serve)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("serving", flush=True)
    await stop.wait()
    leader.drain()
    await server.stop(arguments.grace)
    if arguments.log:
        arguments.log.write_text(json.dumps(leader.emissions))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--serve", required=True, help="address: unix:/path or host:port")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between a request's tokens; 0: at once")
    parser.add_argument("--ids", help="JSON list of the ids to give")
    parser.add_argument("--tokenizer", type=Path, help="folder whose small files are served")
    parser.add_argument("--served-name", default="fake")
    parser.add_argument("--slots", type=int, default=0, help="requests that it runs at once; 0: any number")
    parser.add_argument("--digest", default=Script().digest, help="of its model, and its revision")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds for what is under way, at SIGTERM")
    parser.add_argument("--log", type=Path, help="file for [seed, received, first token] of each request, at SIGTERM")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    asyncio.run(_main(_parse(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
