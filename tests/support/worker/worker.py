"""A worker pod as real processes over Unix sockets, and a client that speaks to it as a router would."""

import array
import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from support.patience import PATIENCE_S, Bound
from support.processes import commands
from support.processes.forked import Forked, Main

from octavo.proto.v1 import engine_pb2, engine_pb2_grpc, group_pb2, group_pb2_grpc
from octavo.release import PROTOCOL
from octavo.worker.channel import OPTIONS

NO_TOKEN = 0xFFFFFFFF
_CHILDREN = {"server": "serve", "fork_server": "fork_server"}  # by the last part of their modules' names


class WorkerProcess:
    """`octavo worker` in a folder of its own, run by `main`. addresses: unix: unless `addresses` says otherwise."""

    def __init__(self, model: str | Path, *flags: str, addresses: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="octavo-test-"))
        names = ("serve", "group", "status", "health", "metrics")
        self.addresses = {name: f"unix:{self.folder}/{name}" for name in names} | (addresses or {})
        self.log = self.folder / "log"
        places = [part for name, address in self.addresses.items() for part in (f"--{name}", address)]
        self._arguments = ["--model", str(model), *places, "--max-requests", "32", "--kv-cache-memory", "64MiB"]
        self.flags = list(flags)
        self.main: Main = commands.main
        self.process: Forked | None = None

    def add_flags(self, *flags: str) -> None:
        """Before it starts."""
        self.flags += flags

    def start(self) -> "WorkerProcess":
        self.process = Forked(self.main, ["worker", *self._arguments, *self.flags], {}, self.log)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def children(self) -> dict[str, int]:
        """Pids of serve, core and a rank, as the process table has them."""
        return dict(self._children())

    def ranks(self) -> list[int]:
        """Pids of all its ranks, in the order of their start."""
        return sorted(pid for name, pid in self._children() if name == "rank")

    def _children(self) -> Iterator[tuple[str, int]]:
        for pid in _children_of(self.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile
                continue
            for part in command:
                if part.startswith(b"octavo.worker."):
                    name = part.decode().rpartition(".")[2]
                    yield _CHILDREN.get(name, name), pid

    async def ready(self, timeout_s: float = PATIENCE_S, why: Callable[[], str] | None = None) -> None:
        """Until /readyz is 200."""
        await until(lambda: self.get("health", "/readyz")[0] == 200, timeout_s, why or self.text)

    def get(self, name: str, path: str) -> tuple[int, str]:
        """(status, body) of a page; status 0 when no process answers."""
        connection = _UnixConnection(self.addresses[name].removeprefix("unix:"))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        for line in self.get("metrics", "/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    async def status(self) -> group_pb2.GroupStatus:
        async with grpc.aio.insecure_channel(self.addresses["status"], options=OPTIONS) as channel:
            stub = group_pb2_grpc.StatusStub(channel)
            return await stub.Get(group_pb2.StatusRequest(), timeout=PATIENCE_S, wait_for_ready=True)

    def text(self) -> str:
        return self.log.read_text()[-6000:]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, timeout_s, self.text)
        return process.wait(0)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def serving(model: str | Path, *flags: str) -> AsyncIterator[WorkerProcess]:
    """A worker that serves; gone afterwards."""
    worker = WorkerProcess(model, *flags).start()
    try:
        await worker.ready()
        yield worker
    finally:
        worker.close()


@dataclass
class Answer:
    """What came for one request. finish: 0 while it goes on."""

    ids: list[int] = field(default_factory=list)
    finish: int = 0
    cached: int = 0
    scores: bytes = b""
    prompt_scores: bytes = b""
    rejected: engine_pb2.Rejected | None = None
    lost: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


class RouterClient:
    """One Serve stream. Ignores credit (a router must not), so that a test can send what it likes."""

    def __init__(
        self, address: str, uid: str = "", channel: grpc.aio.Channel | None = None, protocol: int = PROTOCOL
    ) -> None:
        self._protocol = protocol
        self._channel = channel or grpc.aio.insecure_channel(address, options=OPTIONS)
        self._uid = uid
        self._call = None
        self._writing = asyncio.Lock()  # a gRPC call takes one write at a time
        self.answers: dict[int, Answer] = {}
        self.credit = engine_pb2.Credit()
        self.welcome = engine_pb2.Welcome()
        self.draining = asyncio.Event()
        self.ended = asyncio.Event()
        self.code: grpc.StatusCode | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, reads: bool = True) -> "RouterClient":
        """reads=False: never read beyond the Welcome."""
        self._call = engine_pb2_grpc.EngineStub(self._channel).Serve(wait_for_ready=True)
        hello = engine_pb2.Hello(service_uid=self._uid, router="test", protocol=self._protocol, release="7.0.0")
        await self._write(engine_pb2.FromRouter(hello=hello))
        first = await asyncio.wait_for(self._call.read(), PATIENCE_S)
        assert first is not grpc.aio.EOF, await self._call.details()
        self.welcome = first.welcome
        self.credit = first.credit
        self._tasks = [asyncio.create_task(self._beat())]
        if reads:
            self._tasks.append(asyncio.create_task(self._read()))
        return self

    async def _write(self, message: engine_pb2.FromRouter) -> None:
        async with self._writing:
            await self._call.write(message)

    async def submit(self, prompt: Sequence[int], max_tokens: int, **sampling: Any) -> Answer:
        number = len(self.answers) + 1
        answer = self.answers[number] = Answer()
        message = engine_pb2.FromRouter(
            submit=engine_pb2.Submit(
                number=number,
                prompt=array.array("I", prompt).tobytes(),
                sampling=engine_pb2.SamplingParams(**sampling),
                limits=engine_pb2.Limits(max_tokens=max_tokens),
            )
        )
        await self._write(message)
        if self.ended.is_set():  # no other code will say so
            answer.lost = True
            answer.done.set()
        return answer

    async def cancel(self, number: int) -> None:
        await self._write(engine_pb2.FromRouter(cancel=engine_pb2.Cancel(number=number)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._call is not None:
            self._call.cancel()
        await self._channel.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(2)
            try:
                await self._write(engine_pb2.FromRouter())
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                return

    async def _read(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._take(message)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        self.ended.set()
        for answer in self.answers.values():
            if not answer.done.is_set():
                answer.lost = True
                answer.done.set()
        self.code = await self._call.code()

    def _take(self, message: engine_pb2.FromEngine) -> None:
        assert message.HasField("credit"), "every message repeats the credit"
        self.credit = message.credit
        kind = message.WhichOneof("kind")
        if kind == "output":
            self._rows(message.output)
        elif kind == "rejected":
            answer = self.answers[message.rejected.number]
            answer.rejected = message.rejected
            answer.done.set()
        elif kind == "draining":
            self.draining.set()

    def _rows(self, output: engine_pb2.StepOutput) -> None:
        numbers, ids, cached = (array.array("I", part) for part in (output.numbers, output.ids, output.cached))
        for number, token, finish, hits in zip(numbers, ids, output.finishes, cached, strict=True):
            answer = self.answers[number]
            assert not answer.finish, f"request {number} hears more after its finish"
            if token != NO_TOKEN:
                answer.ids.append(token)
            answer.cached += hits
            answer.finish = finish
            if finish:
                answer.done.set()
        for scores in output.scores:
            answer = self.answers[numbers[scores.row]]
            answer.scores += scores.tokens
            answer.prompt_scores += scores.prompt


@contextlib.asynccontextmanager
async def client(worker: WorkerProcess, reads: bool = True) -> AsyncIterator[RouterClient]:
    one = await RouterClient(worker.addresses["serve"]).open(reads)
    try:
        yield one
    finally:
        await one.close()


async def until(true: Callable[[], bool], timeout_s: float = PATIENCE_S, why: Callable[[], str] = lambda: "") -> float:
    """Poll until it holds; the seconds it took."""
    bound = Bound(timeout_s)
    while not true():
        assert not bound.over, f"not so within {bound}\n{why()}"
        await asyncio.sleep(0.05)
    return bound.kept()


def _children_of(pid: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            yield int(entry.name)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self._path)
