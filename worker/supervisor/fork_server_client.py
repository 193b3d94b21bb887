"""The supervisor's end of the fork server: it asks for ranks one by one, and starts a new server when one is gone.

The first server is started before the supervisor itself has its modules: the imports of both take place side by side.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.rank import fork_server

# A rank's threads spin at OpenMP's barriers by default: where another process wants the CPU, a spinning thread keeps
# it from the very thread that is waited for. libgomp reads this when torch is loaded; the user's own setting wins.
_OPENMP = {"OMP_WAIT_POLICY": "PASSIVE"}
_USER_SETTINGS = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
_STUCK_S = 60.0  # beyond any import: a fork server that has said nothing for so long is stopped, or hangs
_REPLACE_S = 5.0  # after a fork server was lost while no rank was wanted: the next rank then need not wait for imports
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's, started when it is imported and never used here

logger = logging.getLogger(__name__)


class ForkServer(NamedTuple):
    """A process that imports PyTorch, a child of this one, and the socket to it. It ends when that is closed."""

    pid: int
    end: socket.socket


def start() -> ForkServer:
    """Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "octavo.worker.rank.fork_server", str(theirs.fileno()), str(os.getpid())]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment(os.environ)
            )
        except BaseException:
            ours.close()
            raise
    process.returncode = 0  # Children.reap collects it
    ours.setblocking(False)
    return ForkServer(process.pid, ours)


class ForkServerClient:
    """Lasts as long as the supervisor, over its incarnations. first: a server that has been started already."""

    def __init__(self, first: ForkServer | None = None) -> None:
        self._first = first
        self._end: socket.socket | None = None
        self._lock = asyncio.Lock()
        self._forked: asyncio.Future[int] | None = None
        self._unwanted = 0  # answers to come to questions that were taken back
        self._pid = 0
        self._silent_since_s = 0.0  # with an answer to come

    async def fork_rank(self, context: ProcessContext) -> tuple[int, int]:
        """(pid, go) of a new rank, a child of this process. It begins when a byte is written to the descriptor `go`,
        and vanishes when that is closed before. Raises OSError."""
        async with self._lock:
            reading, go = os.pipe2(os.O_CLOEXEC)
            try:
                self._ask(context.own(), reading)
                forked = self._forked = asyncio.get_running_loop().create_future()
                try:
                    return await forked, go
                finally:
                    self._unwanted += forked.cancelled()
            except BaseException:
                os.close(go)
                raise
            finally:
                self._forked = None
                os.close(reading)

    def _ask(self, context: ProcessContext, go: int) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._attach(first)
        now_s = time.monotonic()
        if self._unwanted <= 0:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s > _STUCK_S:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._close()
        if self._end is not None:
            with suppress(ConnectionError):  # it was lost between two requests
                fork_server.ask(self._end, context, go)
                return
            self._close()
        fork_server.ask(self._open(), context, go)

    def _open(self) -> socket.socket:
        server = start()
        self._attach(server)
        return server.end

    def _attach(self, server: ForkServer) -> None:
        self._pid, self._end, self._silent_since_s = server.pid, server.end, time.monotonic()
        asyncio.get_running_loop().add_reader(server.end, self._hear)

    def _hear(self) -> None:
        assert self._end is not None
        data = b""
        with suppress(ConnectionError):
            data = self._end.recv(fork_server.PID.size)
        if not data:
            self._close()
            if self._forked is not None and not self._forked.done():
                self._forked.set_exception(OSError("the process that ranks are forked from has ended"))
            else:
                asyncio.get_running_loop().call_later(_REPLACE_S, self._replace)
        elif self._unwanted > 0:
            self._unwanted -= 1
            self._silent_since_s = time.monotonic()
        elif self._forked is not None and self._forked.cancelled():
            self._unwanted -= 1  # fork_rank counts it as unwanted when it goes on
        elif self._forked is not None and not self._forked.done():
            self._forked.set_result(fork_server.PID.unpack(data)[0])

    def _replace(self) -> None:
        """Start a fork server where there is none."""
        if self._end is None:
            try:
                self._open()
            except OSError as error:  # the next rank that is wanted starts one, or says why that is not possible
                logger.warning("the process that ranks are forked from cannot be started: %s", error)

    def _close(self) -> None:
        """The fork server ends when it sees this."""
        if self._end is not None:
            asyncio.get_running_loop().remove_reader(self._end)
            self._end.close()
            self._end = None
            # A question that is being taken back is counted when fork_rank goes on: no answer to it will come.
            self._unwanted = -1 if self._forked is not None and self._forked.cancelled() else 0


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of the fork server and every rank: only they have threads that wait for each other."""
    return {**_ONE_THREAD, **ours, **({} if _USER_SETTINGS & ours.keys() else _OPENMP)}
