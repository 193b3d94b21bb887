"""`octavo ...` in processes that are forked with their imports in them, and so are those that they start.

So is what the second life of a worker starts; what is started anew after that, or elsewhere because one has ended, is
started as a user's is.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from functools import partial

from support.patience import PATIENCE_S
from support.processes.forked import Forked, preload
from support.processes.spares import Plan, Spares

HELPERS: Plan = (("octavo.router.tokenizer_pool.helper", ()),) * 2
NURSERY: Plan = (("octavo.worker.rank.fork_server", ()),)
LIFE: Plan = (
    ("octavo.worker.leader.server", ()),
    ("octavo.worker.engine_core.core", ()),
)  # what each life of a leader starts anew

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a supervisor tells its fork_server: what forks has one thread
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as a router tells its processes; gRPC asks when it is imported
preload(
    *(
        "octavo.worker.runner.cpu.runner",
        "octavo.worker.rank.devices",
        "octavo.worker.rank",
        "octavo.worker.leader.server",
    ),
    *("octavo.worker.engine_core.core", "octavo.worker.supervisor.supervisor"),
    *("octavo.router.main", "octavo.router.process.process", "octavo.router.tokenizer_pool.helper"),
    *(f"octavo.local.{name}" for name in ("commands", "flags", "service")),
    *(f"octavo.bench.{name}" for name in ("serve", "latency", "throughput")),
)


def main(argv: list[str]) -> int:
    """argv: what follows `octavo`."""
    Spares(_plan(argv)).install()
    return alone(argv)


def alone(argv: list[str]) -> int:
    """The same where nothing is started."""
    from octavo.__main__ import main as octavo

    return octavo(argv)


def _plan(argv: list[str]) -> Plan:
    """What this command starts."""
    if argv[0] == "router":
        return (("octavo.router.process.process", HELPERS),) * _count(argv, "--processes")
    if argv[0] == "worker":
        return NURSERY + LIFE * 2 if _count(argv, "--pod-index", 0) == 0 else NURSERY
    if argv[0] == "run":
        ranks = _count(argv, "--tensor") * _count(argv, "--pipeline")
        pods = _count(argv, "--replicas") * (ranks if "--ranks-per-pod" in argv else 1)
        router = _plan(["router", "--processes", str(_count(argv, "--router-processes"))])
        return (("octavo router", router), *(("octavo worker", NURSERY + LIFE),) * pods)
    return (("octavo run", _plan(["run"])),) if argv[:2] in (["bench", "latency"], ["bench", "throughput"]) else ()


def _count(argv: list[str], flag: str, without: int = 1) -> int:
    return int(argv[argv.index(flag) + 1]) if flag in argv else without


@dataclass(frozen=True, slots=True)
class Done:
    """A command that is over."""

    code: int
    out: str
    err: str


def done(*argv: object, timeout_s: float = PATIENCE_S) -> Done:
    """`octavo ARGV`, which starts nothing, from beginning to end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = Forked(alone, [*map(str, argv)], dict(os.environ), (out.fileno(), err.fileno()))
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return Done(code, *(os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err)))


class Command:
    """One that runs, with what the tests need of asyncio.subprocess.Process."""

    def __init__(self, process: Forked, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._process, self.stdout, self.stderr = process, stdout, stderr
        self.send_signal, self.kill = process.send_signal, process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def communicate(self) -> tuple[bytes, bytes]:
        """What it writes until nobody has its pipes any more; then it has ended."""
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self._process.ended(PATIENCE_S)
        return out, err


async def start(*argv: object) -> Command:
    """`octavo ARGV` with pipes."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        process = Forked(main, [*map(str, argv)], dict(os.environ), (out_end, err_end))
    finally:
        os.close(out_end)
        os.close(err_end)
    return Command(process, await _reader(out), await _reader(err))


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    make = partial(asyncio.StreamReaderProtocol, reader)
    await asyncio.get_running_loop().connect_read_pipe(make, os.fdopen(fd, "rb", 0))
    return reader
