"""Operator processes that start at once: real processes, forked from one that has imported the operator already.

Importing it takes seconds of CPU, and the tests start it some seventy times.
"""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

_START = multiprocessing.get_context("forkserver")
_START.set_forkserver_preload(["pytest", "octavo.operator.main", "octavo.operator.trigger"])


class StillRunning(Exception):
    """A process did not end in time."""


class Forked:
    """One process that runs `octavo operator`, with what the tests need of subprocess.Popen."""

    def __init__(self, argv: list[str], environment: dict[str, str], log: Path) -> None:
        self._process = _START.Process(target=_run, args=(argv, environment, str(log)), daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float) -> int:
        """The exit code; negative: the signal that ended it."""
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise StillRunning(f"process {self._process.pid} runs on after {timeout_s} s")
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def _run(argv: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    from octavo.operator.main import main

    sys.exit(main(argv))
