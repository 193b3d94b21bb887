"""The supervisor's children: started with the descriptors they need, killed together, and never left as zombies.

As pid 1 of a container the supervisor also inherits orphans; they are reaped and forgotten.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from octavo.worker.ipc import process_context
from octavo.worker.ipc.process import Report, read_report
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.supervisor.fork_server_client import ForkServerClient

_MODULES = {"serve": "octavo.worker.leader.server", "core": "octavo.worker.engine_core.core"}


@dataclass(frozen=True, slots=True)
class Exit:
    """A child that ended. rank: -1 for serve and core. code: negative is the signal. killed: by us."""

    name: str
    rank: int
    code: int
    report: Report | None
    killed: bool


@dataclass(slots=True)
class _Child:
    name: str
    rank: int
    report: int
    killed: bool = False


class Children:
    """The children of one incarnation.

    Only `reap` collects them; Popen's own methods look whether the process has ended, collect it too, and it would
    never be seen here. An uncollected pid is not reused, so signals go to pids.
    """

    def __init__(self, fork_server: ForkServerClient) -> None:
        self._fork_server = fork_server
        self._alive: dict[int, _Child] = {}
        self._forks = 0  # under way
        self._gone: dict[int, int] = {}  # exit codes of processes that are not known, or not yet, by pid
        self.exits: list[Exit] = []
        self.changed = asyncio.Event()
        self._killing_since: float | None = None

    @property
    def unkillable_s(self) -> float:
        """For how long killed children have refused to end; 0 when none does."""
        return 0.0 if self._killing_since is None else time.monotonic() - self._killing_since

    def start(self, name: str, context: ProcessContext) -> int:
        """Start `serve` or `core`; its pid. Raises OSError."""
        reading, writing = _report()
        argument = process_context.dump(replace(context, report=writing))
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULES[name], argument],
                stdin=subprocess.DEVNULL,
                pass_fds=[*context.shared.all(), writing],
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        process.returncode = 0  # of no use to us, and else it would look itself
        self._alive[process.pid] = _Child(name, context.rank, reading)
        return process.pid

    async def fork_rank(self, context: ProcessContext) -> int:
        """Start a rank; its pid. Raises OSError."""
        reading, writing = _report()
        self._forks += 1
        try:
            pid, go = await self._fork_server.fork_rank(replace(context, report=writing))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
            self._forks -= 1
        child = _Child("rank", context.rank, reading)
        if (code := self._gone.get(pid)) is not None:  # it has ended before its pid was heard here
            self._collect(child, code)
        else:
            self._alive[pid] = child
        with suppress(BrokenPipeError), os.fdopen(go, "wb", 0) as begin:  # of one that has ended, its exit tells
            begin.write(b"g")
        return pid

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the running children, by name."""
        return {child.name: pid for pid, child in self._alive.items()}

    def reap(self) -> None:
        """Collect every process that has ended; call it on SIGCHLD."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
            if ended is None:
                return
            code = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
            child = self._alive.pop(ended.si_pid, None)
            if child is not None:
                self._collect(child, code)
            elif self._forks:
                self._gone[ended.si_pid] = code

    def _collect(self, child: _Child, code: int) -> None:
        self.exits.append(Exit(child.name, child.rank, code, read_report(child.report), child.killed))
        os.close(child.report)
        self.changed.set()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the child of this name, if it runs."""
        for pid, child in self._alive.items():
            if child.name == name:
                os.kill(pid, number)

    async def kill(self) -> None:
        """SIGKILL them all and wait until none is left. A child that the kernel cannot end keeps this waiting."""
        self._killing_since = time.monotonic()
        for pid, child in self._alive.items():
            child.killed = True
            os.kill(pid, signal.SIGKILL)
        while self._alive:
            self.changed.clear()
            self.reap()
            if self._alive:
                try:
                    await asyncio.wait_for(self.changed.wait(), 0.2)
                except TimeoutError:
                    continue
        self._killing_since = None


def _report() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
