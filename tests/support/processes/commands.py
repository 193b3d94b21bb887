"""`octavo ...` in processes that are forked with their imports in them; what these start is started as a user's is."""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from functools import partial

from support.patience import PATIENCE_S
from support.processes.forked import Forked, preload

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # what forks has one thread
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as a router tells its processes; gRPC asks when it is imported
preload(
    *("octavo.worker.supervisor.supervisor", "octavo.router.main"),
    *(f"octavo.local.{name}" for name in ("commands", "flags", "service")),
    *(f"octavo.bench.{name}" for name in ("serve", "latency", "throughput")),
)


def main(argv: list[str]) -> int:
    """argv: what follows `octavo`."""
    from octavo.__main__ import main as octavo

    return octavo(argv)


@dataclass(frozen=True, slots=True)
class Done:
    """A command that is over."""

    code: int
    out: str
    err: str


def done(*argv: object, timeout_s: float = PATIENCE_S) -> Done:
    """`octavo ARGV`, which starts nothing, from beginning to end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = Forked(main, [*map(str, argv)], dict(os.environ), (out.fileno(), err.fileno()))
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
        """What it writes until no process has its pipes any more; then it has ended."""
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
