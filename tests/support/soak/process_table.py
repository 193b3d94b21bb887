"""The processes of one `octavo run`, by their roles: all with its TMPDIR in their environment, and their children."""

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Role(StrEnum):
    ROUTER_PROCESS = "router process"
    HELPER = "helper"  # tokenises
    SERVE = "serve"
    CORE = "core"
    RANK = "rank"
    FORK_SERVER = "fork server"  # of ranks
    SUPERVISOR = "supervisor"
    ROUTER = "router"  # the parent of router processes
    RUN = "run"
    OTHER = "other"


# Part of a command line that no role before it has.
_SIGNS = (
    ("octavo.router.process.process", Role.ROUTER_PROCESS),
    ("octavo.router.tokenizer_pool.helper", Role.HELPER),
    ("octavo.worker.leader.server", Role.SERVE),
    ("octavo.worker.engine_core.core", Role.CORE),
    ("octavo.worker.rank.fork_server", Role.FORK_SERVER),
    ("octavo.worker.rank", Role.RANK),
    ("octavo\0worker\0", Role.SUPERVISOR),
    ("octavo\0router\0", Role.ROUTER),
    ("octavo\0run\0", Role.RUN),
)


@dataclass(frozen=True, slots=True)
class Process:
    """state: the kernel's letter. begun: clock ticks since boot, which with the pid names one process for ever."""

    pid: int
    role: Role
    state: str
    parent: int
    begun: int
    resident_bytes: int
    descriptors: int

    @property
    def ended(self) -> bool:
        return self.state in "ZX"

    @property
    def stopped(self) -> bool:
        return self.state in "Tt"


class ProcessTable:
    def __init__(self, folder: Path) -> None:
        """folder: the TMPDIR of the processes."""
        self._mark = f"TMPDIR={folder}\0".encode()

    def scan(self) -> dict[int, Process]:
        """By pid, zombies too."""
        seen = {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := _stat(int(name)))}
        ours = {pid for pid in seen if self._mark in _read(f"/proc/{pid}/environ")}
        while more := {pid for pid, stat in seen.items() if int(stat[1]) in ours} - ours:
            ours |= more
        return {pid: _process(pid, seen[pid]) for pid in ours - {os.getpid()}}

    def send(self, process: Process, number: signal.Signals) -> bool:
        """False: it has ended; another that has its pid is not hit."""
        stat = _stat(process.pid)
        if not stat or int(stat[19]) != process.begun:
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def is_running(self, process: Process) -> bool:
        stat = _stat(process.pid)
        return bool(stat) and int(stat[19]) == process.begun and stat[0] != "Z"


def _process(pid: int, stat: list[str]) -> Process:
    command = _read(f"/proc/{pid}/cmdline").decode(errors="replace")
    role = next((role for sign, role in _SIGNS if sign in command), Role.OTHER)
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        descriptors = 0
    return Process(pid, role, stat[0], int(stat[1]), int(stat[19]), int(stat[21]) * _PAGE, descriptors)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name; none of a process that is gone."""
    return _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
