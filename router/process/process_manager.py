"""The processes of one router, as their parent sees them: kept alive, asked for metrics, drained together.

A process that does not answer is killed (rules/liveness.py says when); one that has ended is started again.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, generate_latest

from octavo.router.background import background
from octavo.router.process.rules.liveness import ProcessLiveness
from octavo.router.process.rules.metrics_merge import MergedMetrics
from octavo.shared.parent import ending_with_us

log = logging.getLogger("octavo.router")

BACKOFF_S = (0.2, 10.0)
GOOD_S = 60.0  # a process that ran this long resets the back-off
SCRAPE_S = 1.0
POLL_S = 5.0
LOOK_S = 0.2  # after a question without an answer
# Helpers are forked and become other programs at once: neither library need prepare for more. gRPC would restart its
# threads in the fork, where they sometimes fail before the fork has become a helper.
QUIET_FORKS = {"GRPC_ENABLE_FORK_SUPPORT": "0", "TOKENIZERS_PARALLELISM": "false"}
SNAPSHOT_BYTES = 16 << 20


class ProcessManager:
    """Starts, polls, restarts and drains the processes of one router."""

    def __init__(self, argv: Sequence[str], size: int) -> None:
        self._argv = list(argv)
        self._children = [ChildProcess(index) for index in range(size)]
        self._merged = MergedMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(self._merged)
        self._restarts = Counter(
            "octavo_router_process_restarts", "Processes that ended without being asked to", registry=self._registry
        )

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event, grace_s: float) -> None:
        """Until `stop`, then drain. `hurry` or the end of the grace period kills what is left."""
        keepers = [background(self._keep(child, stop), f"keeper of process {child.index}") for child in self._children]
        polls = [background(self._poll(child), f"poll of process {child.index}") for child in self._children]
        await stop.wait()
        log.info("draining")
        for child in self._children:
            child.signal(signal.SIGTERM)
        waits = (asyncio.gather(*keepers), asyncio.ensure_future(hurry.wait()))
        await asyncio.wait(waits, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for child in self._children:
            child.signal(signal.SIGKILL)
        waits[1].cancel()
        for poll in polls:
            poll.cancel()
        await waits[0]

    async def metrics(self) -> bytes:
        """Fresh from every process that answers in time; the others' last ones."""
        await asyncio.gather(*(self._ask(child) for child in self._children))
        return generate_latest(self._registry)

    async def _ask(self, child: "ChildProcess") -> None:
        try:
            if line := await child.ask():
                self._merged.update(child.index, line)
        except ValueError as error:  # half a line, or one beyond the bound: the last good one stands
            log.warning("process %d: its metrics cannot be read: %s", child.index, error)

    async def _poll(self, child: "ChildProcess") -> None:
        """So that little is lost of a process that is killed, and one that is stopped or hangs is found."""
        while True:
            await asyncio.sleep(LOOK_S if child.owes else POLL_S)
            await self._ask(child)
            if (verdict := child.verdict()) is not None:
                log.error("process %d %s; it is killed", child.index, verdict)
                child.signal(signal.SIGKILL)

    async def _keep(self, child: "ChildProcess", stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        pause_s = BACKOFF_S[0]
        while not stop.is_set():
            begun = loop.time()
            try:
                how = f"ended with code {await self._run_once(child, stop)}"
            except Exception as error:  # no memory or descriptors now, or a bug of ours: the next start may succeed
                log.exception("process %d cannot be kept", child.index)
                child.signal(signal.SIGKILL)
                how = f"failed ({type(error).__name__})"
            self._merged.end(child.index)
            if stop.is_set():
                return
            self._restarts.inc()
            pause_s = BACKOFF_S[0] if loop.time() - begun > GOOD_S else pause_s
            log.error("process %d %s; restarting it in %.1f s", child.index, how, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S[1])

    async def _run_once(self, child: "ChildProcess", stop: asyncio.Event) -> int:
        """Run one process from its start to its exit code."""
        await child.start(self._argv)
        if stop.is_set():  # it came while the process was being made
            child.signal(signal.SIGTERM)
        code, last = await child.ended()
        if last:
            self._merged.update(child.index, last)
        return code


class ChildProcess:
    """One child process, across restarts."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._process: asyncio.subprocess.Process | None = None
        self._lines: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asking = asyncio.Lock()
        self._owed = 0  # answers that are still to come, also to queries that timed out
        self._liveness = ProcessLiveness.begun(time.monotonic())

    async def start(self, argv: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        self._liveness = ProcessLiveness.begun(time.monotonic())
        with theirs:
            # A session of its own: the terminal's Ctrl-C is for the parent, which drains.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "octavo.router.process.process",
                str(theirs.fileno()),
                str(self.index),
                *argv,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **QUIET_FORKS, **ending_with_us(signal.SIGKILL)},
            )
        self._lines, self._writer = await asyncio.open_unix_connection(sock=ours, limit=SNAPSHOT_BYTES)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def ask(self) -> bytes:
        """A snapshot, or nothing from one that does not answer in time."""
        async with self._asking:
            if self._lines is None or self._writer is None:
                return b""
            line = b""
            self._writer.write(b"?")
            if not self._owed:
                self._liveness = self._liveness.asked(time.monotonic())
            self._owed += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(SCRAPE_S):
                    while self._owed and not self._lines.at_eof():
                        line = await self._line()
            now_s = time.monotonic()
            self._liveness = self._liveness.answered(now_s) if line else self._liveness.unanswered(now_s)
            return line if line.endswith(b"\n") else b""

    async def _line(self) -> bytes:
        """An answer. Raises ValueError when it is longer than may be, which is one too."""
        assert self._lines is not None
        try:
            line = await self._lines.readline()
        except ValueError:
            self._owed -= 1
            self._liveness = self._liveness.answered(time.monotonic())
            raise
        self._owed -= 1
        return line

    @property
    def owes(self) -> bool:
        """Whether an answer is still to come."""
        return self._owed > 0

    def verdict(self) -> str | None:
        """Why it must be killed; reported once, and again when the kill did not end it."""
        verdict = self._liveness.verdict if self.owes else None
        if verdict is not None:
            self._liveness = self._liveness.asked(time.monotonic())
        return verdict

    async def ended(self) -> tuple[int, bytes]:
        """Its exit code, and the snapshot it sent last."""
        assert self._process is not None and self._lines is not None and self._writer is not None
        code = await self._process.wait()
        async with self._asking:
            rest = b""
            with suppress(OSError):
                rest = await self._lines.read()
            self._writer.close()
            self._lines = self._writer = None
            self._owed = 0
        lines = [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
        return code, lines[-1] if lines else b""
