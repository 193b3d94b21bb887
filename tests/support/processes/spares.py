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
from typing import Any

from octavo.worker.ipc import process

Plan = tuple[tuple[str, Any], ...]  # of each spare: the words after -m that it is for, and the Plan of its own spares

_MESSAGE_BYTES = 1 << 17
_HIGH = 200  # descriptors from here on are nobody's
_fork_exec = subprocess._fork_exec  # type: ignore[attr-defined]
_create_subprocess_exec = asyncio.create_subprocess_exec


@dataclass(frozen=True, slots=True)
class _Spare:
    words: list[str]
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
            self._waiting.append(_Spare(words.split(), pid, socket.socket(fileno=_up(ours.detach()))))

    def install(self) -> None:
        """From now on this process starts the planned ones from its spares."""
        subprocess._fork_exec = self._fork_exec  # type: ignore[attr-defined]
        asyncio.create_subprocess_exec = self._create_subprocess_exec  # type: ignore[assignment]

    def ends(self) -> list[int]:
        """Descriptors that this process must keep."""
        return [spare.end.fileno() for spare in self._waiting]

    def _wake(
        self, command: Sequence[str], env: Mapping[str, str] | None, fds: Mapping[int, int], session: bool
    ) -> int:
        """The pid of who becomes `command` with these descriptors ({number there: ours}); 0: no spare is for it."""
        spare = next((spare for spare in self._waiting if _begins(command, spare.words)), None)
        if spare is None:
            return 0
        self._waiting.remove(spare)
        wish = {"command": command[2:], "env": dict(os.environ if env is None else env), "session": session}
        with spare.end as end:
            socket.send_fds(end, [json.dumps(wish | {"numbers": list(fds)}).encode()], list(fds.values()))
        return spare.pid

    def _fork_exec(
        self, args: Sequence[str | bytes], programs: Any, close_fds: bool, kept: Sequence[int], cwd: Any,
        env: Sequence[bytes] | None, in_read: int, in_write: int, out_read: int, out_write: int, err_read: int,
        err_write: int, failed_read: int, failed_write: int, restore_signals: bool, session: bool, *more: Any,
    ) -> int:  # fmt: skip
        """As the function of this name that subprocess.Popen calls."""
        standard = {number: fd for number, fd in enumerate((in_read, out_write, err_write)) if fd != -1}
        fds = {fd: fd for fd in kept if fd != failed_write} | standard
        given = None if env is None else dict(os.fsdecode(entry).split("=", 1) for entry in env)
        pid = self._wake([os.fsdecode(arg) for arg in args], given, fds, session)
        return pid or _fork_exec(
            args, programs, close_fds, kept, cwd, env, in_read, in_write, out_read, out_write, err_read, err_write,
            failed_read, failed_write, restore_signals, session, *more,
        )  # fmt: skip

    async def _create_subprocess_exec(self, *command: str, env: Mapping[str, str] | None = None, **more: Any) -> Any:
        """For uvloop, which does without subprocess.Popen: who has pipes as stdin and stdout, as helpers have."""
        pipe = asyncio.subprocess.PIPE
        if more == {"stdin": pipe, "stdout": pipe}:
            ours, theirs = socket.socketpair()
            with theirs:
                pid = self._wake(command, env, {0: theirs.fileno(), 1: theirs.fileno()}, False)
            if pid:
                return _Adopted(pid, *await asyncio.open_unix_connection(sock=ours))
            ours.close()
        return await _create_subprocess_exec(*command, env=env, **more)


class _Adopted:
    """What our processes need of asyncio.subprocess.Process."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._collect)

    def _collect(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.stdin.close()
        self._ended.set()

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


def _begins(command: Sequence[str], words: list[str]) -> bool:
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
        own.install()
        code = _become(asked["command"])
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


def _become(command: Sequence[str]) -> int:
    """What `python -m COMMAND` is; its exit code."""
    process.rename(sys.executable, "-m", *command)
    sys.argv = list(command)
    sys.stdin = open(0, closefd=False)
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0
