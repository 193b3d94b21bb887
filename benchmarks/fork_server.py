"""How soon a rank begins: by our fork server, and by the standard library's: `python benchmarks/fork_server.py`.

    cold     no fork server yet: it is started, imports PyTorch, and forks
    warm     the fork server is there
    lost     the fork server was killed a moment ago, while a rank was wanted
    plain    no fork server: `python -m` and the same imports

Seconds until a rank writes its first word on the shared board, median of the runs. Beside it the memory of fork server
and rank, each page divided by the number of processes that share it.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import record

from octavo.proto.v1 import group_pb2
from octavo.shared.parent import die_with
from octavo.worker.config import Config
from octavo.worker.ipc import process
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.ipc.shared_board import RANK, Board, ProcessSlot
from octavo.worker.supervisor.fork_server_client import ForkServerClient, environment

IMPORTS = ["octavo.worker.rank.devices", "octavo.worker.runner.cpu.runner", "octavo.worker.rank.rank"]
LIMIT_S = 60.0


class Pod:
    """What a supervisor gives a rank, and its board."""

    def __init__(self) -> None:
        local = "unix:/nowhere/octavo"  # nothing listens: the rank ends before it loads
        config = Config("none", "none", local, local, local, local, local)
        self.report, self._report_end = os.pipe()
        shared = create_shared(1)
        self.board = Board(shared.board)
        self.context = ProcessContext(config, "/nowhere", "", "0", shared, local, self._report_end, 0, os.getpid())

    def begun(self) -> bool:
        return bool(self.board.read(RANK, ProcessSlot.PHASE))

    def close(self) -> None:
        os.close(self.report)
        os.close(self._report_end)
        self.board.close()
        self.context.shared.close()


async def until(happened: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < limit, f"no rank began within {LIMIT_S:.0f} s"
        await asyncio.sleep(0.0005)


class Ours:
    """The fork server of a worker pod."""

    def __init__(self) -> None:
        self._client = ForkServerClient()

    async def rank(self, pod: Pod) -> int:
        """Its pid, once it has begun and stands still."""
        pid, go = await self._client.fork_rank(pod.context)
        os.write(go, b"g")
        await until(pod.begun)
        os.kill(pid, signal.SIGSTOP)
        os.close(go)
        return pid

    @property
    def server(self) -> int:
        return self._client._pid  # private, as no other caller needs the pid

    def reap(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def begin(board: Any, parent: int) -> None:
    """What a rank of the standard library's fork server does, as far as one of ours is looked at."""
    die_with(os.getppid())
    Board(board.detach()).write(RANK, ProcessSlot.PHASE, group_pb2.LOADING)
    time.sleep(LIMIT_S)


class Stdlib:
    """multiprocessing's fork server with the same modules."""

    def __init__(self) -> None:
        self._start = multiprocessing.get_context("forkserver")
        self._start.set_forkserver_preload(IMPORTS)
        self._rank: Any = None

    async def rank(self, pod: Pod) -> int:
        self._rank = self._start.Process(target=begin, args=(_Fd(pod.context.shared.board), os.getpid()))
        self._rank.start()
        await until(pod.begun)
        assert self._rank.pid is not None
        return int(self._rank.pid)

    @property
    def server(self) -> int:
        return int(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]  # it has no name for it

    def reap(self, pid: int) -> None:
        self._rank.kill()
        self._rank.join()


class _Fd:
    """Pickled while a process is started: then DupFd knows where to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._fd),)


def _received(fd: Any) -> Any:
    return fd


async def plain(pod: Pod) -> int:
    """`python -m` with the imports of a rank."""
    board = pod.context.shared.board
    imports = "; ".join(f"import {name}" for name in IMPORTS)
    says = f"Board({board}).write(RANK, ProcessSlot.PHASE, 1)"
    code = f"{imports}; from octavo.worker.ipc.shared_board import *; {says}; import time; time.sleep({LIMIT_S})"
    started = subprocess.Popen([sys.executable, "-c", code], pass_fds=[board])
    await until(pod.begun)
    started.returncode = 0  # the caller reaps it
    return started.pid


def mib(pid: int) -> float:
    """Proportional set size."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


async def timed(rank: Callable[[Pod], Awaitable[int]]) -> tuple[float, int]:
    pod = Pod()
    begun = time.monotonic()
    pid = await rank(pod)
    seconds = time.monotonic() - begun
    pod.close()
    return seconds, pid


async def measure(kind: type[Ours] | type[Stdlib], runs: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in ("cold_s", "warm_s", "lost_s", "server_mib", "rank_mib")}
    starter = kind()
    for run in range(runs):
        seconds, pid = await timed(starter.rank)
        found["lost_s" if run else "cold_s"].append(seconds)
        starter.reap(pid)
        for _ in range(3):
            seconds, pid = await timed(starter.rank)
            found["warm_s"].append(seconds)
            found["server_mib"].append(mib(starter.server))
            found["rank_mib"].append(mib(pid))
            starter.reap(pid)
        os.kill(starter.server, signal.SIGKILL)
        await asyncio.sleep(0.2)
    return {name: round(statistics.median(values), 4) for name, values in found.items()}


async def measure_plain(runs: int) -> dict[str, float]:
    seconds, sizes = [], []
    for _ in range(runs):
        took, pid = await timed(plain)
        seconds.append(took)
        sizes.append(mib(pid))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return {"plain_s": round(statistics.median(seconds), 4), "rank_mib": round(statistics.median(sizes), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="fork servers of each kind (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "fork-server-cpu.json")
    arguments = parser.parse_args()
    if arguments.runs < 2:
        parser.error("--runs: at least 2, the first is the cold one")
    made_on = record.machine(["torch"])
    process.adopt_orphans()
    os.environ.update(environment(os.environ))
    results = {
        "ours": asyncio.run(measure(Ours, arguments.runs)),
        "stdlib": asyncio.run(measure(Stdlib, arguments.runs)),
        "plain": asyncio.run(measure_plain(arguments.runs)),
    }
    for name, figures in results.items():
        print(f"{name:7}" + "  ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    record.write(arguments.out, made_on, results)


if __name__ == "__main__":
    main()
