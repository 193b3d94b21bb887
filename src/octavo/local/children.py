"""The child processes of a local service, supervised on one machine as the kubelet does in a cluster.

A process that exits is restarted after a back-off, until `stop` drains it. When `octavo run` is killed, its children
are killed too.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from octavo.shared.parent import ending_with_us

BACKOFF_FIRST_S = 0.5
BACKOFF_LAST_S = 10.0
GOOD_AFTER_S = 60.0  # a run of this length resets the back-off
NOTHING: Mapping[str, str] = MappingProxyType({})
QUIET = {"GRPC_VERBOSITY": "ERROR"}  # gRPC's messages about forks would break the progress bar


class Child:
    """One process and its restarts. argv: arguments of `python -m octavo`. environment: variables to set or replace."""

    def __init__(
        self, name: str, argv: Sequence[str], report: Callable[[str], None], environment: Mapping[str, str] = NOTHING
    ) -> None:
        self.name = name
        self.last_code: int | None = None  # of the last run that ended by itself
        self._argv = list(argv)
        self._environment = {**QUIET, **environment}
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the process and restarts it whenever it exits."""
        await self._spawn()
        self._watch = asyncio.create_task(self._keep())

    async def stop(self, timeout_s: float) -> int:
        """Drains the process by SIGTERM and kills it after timeout_s; returns its exit code."""
        self._stopping.set()
        if self._process is None or self._watch is None:
            return 0
        self._ask_to_drain()
        try:
            await asyncio.wait_for(asyncio.shield(self._watch), timeout_s)
        except TimeoutError:
            self._report(f"{self.name} did not drain within {timeout_s:.0f} s and was killed")
            self._process.kill()
            await self._watch
        return self._process.returncode or 0

    def _ask_to_drain(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def _spawn(self) -> None:
        # A session of its own: Ctrl-C on the terminal reaches `octavo run` alone, which then drains in order.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "octavo", *self._argv, start_new_session=True,
            env={**os.environ, **self._environment, **ending_with_us(signal.SIGKILL)},
        )  # fmt: skip

    async def _keep(self) -> None:
        backoff = BACKOFF_FIRST_S
        while self._process is not None:
            began = time.monotonic()
            code = await self._process.wait()
            if self._stopping.is_set():
                return
            self.last_code = code
            if time.monotonic() - began > GOOD_AFTER_S:
                backoff = BACKOFF_FIRST_S
            self._report(f"{self.name} exited with code {code}; restarting it in {backoff:.1f} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), backoff)
                return
            except TimeoutError:
                backoff = min(2 * backoff, BACKOFF_LAST_S)
            try:
                await self._spawn()
                if self._stopping.is_set():  # during the start
                    self._ask_to_drain()
            except OSError as error:  # out of memory, processes or file descriptors
                self._report(f"{self.name} cannot be started: {error}")
