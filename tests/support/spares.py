"""Processes that are forked ahead and become what their parent would start by exec: `python -m MODULE ...`.

Half a second of CPU goes into the imports of each of our processes; who is forked has them already. A spare is its
user's own child from the beginning; the command, environment and descriptors come when it is wanted. Once the spares
are used up, what is started next is started as a user's is.
"""

import asyncio
import fcntl
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from octavo.worker import process

Plan = tuple[tuple[str, Any], ...]  # (the words after -m that it is for, the Plan of its own spares) of each
HELPERS: Plan = (("octavo.router.helper", ()),) * 2
ROUTER: Plan = (("octavo.router.process", HELPERS),)
WORKER: Plan = tuple((f"octavo.worker.{name}", ()) for name in ("serve", "core", "nursery"))
MODULES = (
    *(f"octavo.worker.{name}" for name in ("cpu.runner", "devices", "rank", "serve", "core", "supervisor")),
    *(f"octavo.router.{name}" for name in ("main", "process", "helper")),
)

_MESSAGE_BYTES = 1 << 17
_HIGH = 200  # descriptors from here on are nobody's


@dataclass(frozen=True, slots=True)
class _Spare:
    words: str
    pid: int
    end: socket.socket


class Spares:
    """Must be made while the process has one thread."""

    def __init__(self, plan: Plan) -> None:
        self._waiting: list[_Spare] = []
        for words, its_own in plan:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if pid == 0:
                for end in (ours, *(spare.end for spare in self._waiting)):
                    end.close()
                _wait(theirs, its_own)
            theirs.close()
            self._waiting.append(_Spare(words, pid, socket.socket(fileno=_up(ours.detach()))))

    def ends(self) -> list[int]:
        """Descriptors that this process must keep."""
        return [spare.end.fileno() for spare in self._waiting]

    def wake(
        self, command: Sequence[str], env: Mapping[str, str] | None, fds: Mapping[int, int], session: bool = False
    ) -> int | None:
        """The pid of who becomes `command` with these descriptors ({number there: ours}); None: no spare is for it."""
        spare = next((spare for spare in self._waiting if _is_for(spare, command)), None)
        if spare is None:
            return None
        self._waiting.remove(spare)
        wish = {"command": command[2:], "env": dict(os.environ if env is None else env), "session": session}
        with spare.end as end:
            message = json.dumps(wish | {"numbers": list(fds)}).encode()
            socket.send_fds(end, [message], list(fds.values()))
        return spare.pid

    def popen(
        self, command: Sequence[str], *, stdin: int, pass_fds: Sequence[int], env: Mapping[str, str] | None = None
    ) -> Any:
        """As subprocess.Popen; of the result only `pid` is of use."""
        with open(os.devnull, "rb") as nothing:
            pid = self.wake(command, env, {0: nothing.fileno(), **{fd: fd for fd in pass_fds}})
        if pid is None:
            return subprocess.Popen(command, stdin=stdin, pass_fds=pass_fds, env=env)
        return SimpleNamespace(pid=pid, returncode=None)

    async def start(
        self, *command: str, env: Mapping[str, str] | None = None, stdin: int | None = None, stdout: int | None = None,
        pass_fds: Sequence[int] = (), start_new_session: bool = False, **more: Any,
    ) -> Any:  # fmt: skip
        """As asyncio.create_subprocess_exec; pipes: for stdin and stdout together or for neither."""
        ours, theirs = socket.socketpair()
        with theirs:
            piped = (0, 1) if stdin == asyncio.subprocess.PIPE == stdout else ()
            fds = {fd: fd for fd in pass_fds} | dict.fromkeys(piped, theirs.fileno())
            pid = None if more else self.wake(command, env, fds, start_new_session)
        if pid is not None:
            streams = await asyncio.open_unix_connection(sock=ours) if piped else (None, None)
            return _Adopted(pid, *streams)
        ours.close()
        return await _exec(
            *command, env=env, stdin=stdin, stdout=stdout, pass_fds=pass_fds, start_new_session=start_new_session, **more
        )


_exec = asyncio.create_subprocess_exec


class _Adopted:
    """What our processes need of asyncio.subprocess.Process."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader | None, stdin: asyncio.StreamWriter | None) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._collect)

    def _collect(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        if self.stdin is not None:
            self.stdin.close()
        self._ended.set()

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


def _is_for(spare: _Spare, command: Sequence[str]) -> bool:
    words = spare.words.split()
    return list(command[: 2 + len(words)]) == [sys.executable, "-m", *words]


def _wait(wish: socket.socket, plan: Plan) -> None:
    """Until it is wanted, and then become that; or end when the parent does. Never returns."""
    code = 1
    try:
        own = Spares(plan)
        data, fds, *_ = socket.recv_fds(wish, _MESSAGE_BYTES, _HIGH)
        if not data:
            os._exit(0)
        asked = json.loads(data)
        wish.detach()  # closed with all the others
        _settle(dict(zip(asked["numbers"], fds, strict=True)), own.ends())
        if asked["session"]:
            os.setsid()
        os.environ.clear()
        os.environ.update(asked["env"])
        code = _become(asked["command"], own)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _settle(fds: Mapping[int, int], kept: Sequence[int]) -> None:
    """Have these descriptors under these numbers, and no others but the terminal's and `kept`."""
    aside = {number: _up(fd) for number, fd in fds.items()}
    spared = {0, 1, 2, *aside.values(), *kept}
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - spared:
        with suppress(OSError):  # that of the list itself is closed
            os.close(fd)
    for number, fd in aside.items():
        os.dup2(fd, number)
        os.close(fd)


def _up(fd: int) -> int:
    """The same under a number that nobody asks for."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(fd)
    return high


def _become(command: Sequence[str], own: Spares) -> int:
    """What `python -m COMMAND` is; its exit code."""
    process.rename(sys.executable, "-m", *command)
    sys.argv = list(command)
    sys.stdin = open(0, closefd=False)
    asyncio.create_subprocess_exec = own.start  # type: ignore[assignment]
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0
