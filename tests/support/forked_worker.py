"""`octavo worker` in a process that is forked with PyTorch in it; its nursery too, which else imports that anew.

Only the first nursery of a supervisor comes so; when that is lost, the supervisor starts the next one as a user's does.
"""

import os
import socket
import subprocess
from types import SimpleNamespace
from typing import Any

from support.forked import preload

from octavo.worker import cradle, nursery, process
from octavo.worker.main import main as worker

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a supervisor tells its nursery: what forks has one thread
preload(*(f"octavo.worker.{module}" for module in ("cpu.runner", "devices", "rank", "supervisor")))


def main(argv: list[str]) -> int:
    ours, theirs = socket.socketpair()
    supervisor_pid = os.getpid()
    if os.fork() == 0:
        ours.close()
        _be_nursery(theirs, supervisor_pid)
    theirs.close()
    cradle.subprocess = SimpleNamespace(DEVNULL=subprocess.DEVNULL, Popen=_Nurseries(ours).start)  # type: ignore[assignment]
    return worker(argv)


def _be_nursery(wish: socket.socket, supervisor_pid: int) -> None:
    """Once it is wanted. Never returns."""
    try:
        _, fds, *_ = socket.recv_fds(wish, 1, 1)
        if fds:  # else the supervisor is gone
            process.rename("octavo.worker.nursery")
            nursery.main([str(fds[0]), str(supervisor_pid)])
    finally:
        os._exit(0)


class _Nurseries:
    """Instead of subprocess.Popen, where the supervisor starts its nursery."""

    def __init__(self, wish: socket.socket) -> None:
        self._wish: socket.socket | None = wish

    def start(self, command: list[str], *, pass_fds: list[int], **how: Any) -> Any:  # as of Popen
        if self._wish is None:
            return subprocess.Popen(command, pass_fds=pass_fds, **how)
        with self._wish as wish:
            self._wish = None
            socket.send_fds(wish, [b"!"], pass_fds)
        return SimpleNamespace(returncode=None)
