"""Processes of ours that start at once: real ones, forked from one that has imported their modules already.

Importing the router or the operator takes a second of CPU, PyTorch three, and the tests start each some seventy times.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

Main = Callable[[list[str]], int]  # of a module, so that its name says where it is
_START = multiprocessing.get_context("forkserver")
_MODULES = ["pytest"]


def preload(*modules: str) -> None:
    """What processes have from birth, those of every call before the first of them."""
    _MODULES.extend(module for module in modules if module not in _MODULES)
    _START.set_forkserver_preload([*_MODULES, "support.frozen"])


class StillRunning(Exception):
    """A process did not end in time."""


class Forked:
    """One process that runs `main(argv)`, with what the tests need of subprocess.Popen."""

    def __init__(self, main: Main, argv: list[str], environment: dict[str, str], log: Path) -> None:
        self._process = _START.Process(target=_run, args=(main, argv, environment, str(log)), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float) -> int:
        """The exit code; negative: the signal that ended it."""
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise StillRunning(f"process {self._process.pid} runs on after {timeout_s} s")
        return self._process.exitcode

    async def ended(self, timeout_s: float) -> int:
        """The same, while other tasks go on."""
        end = time.monotonic() + timeout_s
        while self.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return self.wait(0)

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def _run(main: Main, argv: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.exit(main(argv))
