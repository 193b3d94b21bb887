"""Processes of ours that start at once: real ones, forked from one that has imported their modules already.

Importing the router or the operator takes a second of CPU, PyTorch three, and the tests start each some seventy times.
"""

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import reduction
from pathlib import Path
from typing import Any

Main = Callable[[list[str]], int]  # of a module, so that its name says where it is
_START = multiprocessing.get_context("forkserver")
_MODULES = ["pytest"]


def preload(*modules: str) -> None:
    """What processes have imported when they start: the modules of every call before the first of them."""
    _MODULES.extend(module for module in modules if module not in _MODULES)
    _START.set_forkserver_preload(_MODULES)


class StillRunning(Exception):
    """A process did not end in time."""


class Forked:
    """One process that runs `main(argv)`, with what the tests need of subprocess.Popen.

    output: a file that it writes to, or descriptors for its stdout and stderr.
    """

    def __init__(
        self, main: Main, argv: list[str], environment: dict[str, str], output: Path | tuple[int, int]
    ) -> None:
        where = str(output) if isinstance(output, Path) else tuple(_Descriptor(fd) for fd in output)
        self._process = _START.Process(target=_run, args=(main, argv, environment, where), daemon=True)
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


class _Descriptor:
    """Of ours; in the process that it is sent to, its number there."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._fd),)


def _received(sent: Any) -> int:
    return int(sent.detach())


def _run(main: Main, argv: list[str], environment: dict[str, str], output: str | tuple[int, int]) -> None:
    gc.freeze()  # a collection would go through all that was preloaded, and so copy it
    os.environ.update(environment)
    if isinstance(output, str):
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        output = (file, file)
    for number, fd in enumerate(output, 1):
        os.dup2(fd, number)
    for fd in {*output}:
        os.close(fd)
    sys.exit(main(argv))
