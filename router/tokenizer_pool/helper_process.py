"""One helper process, as the router sees it: started, called, watched, killed; and the fault that ended it.

A helper is lost by its input, or by another cause. Only the first is the client's fault:

    over the limit, had half of a CPU         the input is too slow
    over the limit, stopped or without CPU    the process was held up
    ended by itself, out of memory            the input is too large
    ended by SIGKILL or SIGTERM               another process ended it
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from octavo.router.background import background
from octavo.router.tokenizer_pool.helper import LENGTHS, OUT_OF_MEMORY, Header
from octavo.shared.parent import ending_with_us

LOAD_LIMIT_S = 60.0
END_S = 1.0
# On a busy machine a helper may work for long and have little of a CPU. Its input is to blame once the helper has used
# this share of the limit. One that had less than the other share of a whole limit did not work: it was stopped, frozen
# with its container, or waited for a disk.
SLOW_SHARE, HELD_UP_SHARE = 0.5, 0.05
STOPPED = ("T", "t")  # in /proc: by a signal, by a debugger
TICKS = os.sysconf("SC_CLK_TCK")

Fault = Literal["slow", "memory", "outside", "crash"]


class ProcessUsage(NamedTuple):
    """Of a process. state: the kernel's letter for it. cpu_s: seconds of CPU that it has used."""

    state: str
    cpu_s: float


def fault_over_limit(uses: Sequence[ProcessUsage | None], limit_s: float) -> Fault | None:
    """Of a helper that has not answered. uses: at its start, and each limit_s seconds from then on; an entry is None
    where there is no /proc, or no process. None: it is at work and has had too little CPU to be judged."""
    first, before, after = uses[0], uses[-2], uses[-1]
    if first is None or before is None or after is None:
        return "slow"
    if after.state in STOPPED or after.cpu_s - before.cpu_s < HELD_UP_SHARE * limit_s:
        return "outside"
    return "slow" if after.cpu_s - first.cpu_s >= SLOW_SHARE * limit_s else None


def fault_of_end(code: int) -> Fault:
    """Of a helper that ended while it worked. code: negative is the signal."""
    if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return "outside"
    # Native code calls abort() when it gets no memory within the helper's limit.
    return "memory" if code in (OUT_OF_MEMORY, -signal.SIGABRT) else "crash"


class HelperProcess:
    """Start it once. `gone` is set when it has ended."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, load: bytes) -> None:
        """Raises OSError, EOFError or TimeoutError."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "octavo.router.tokenizer_pool.helper",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", **ending_with_us(signal.SIGKILL)},
        )
        background(self._watch(self._process), "watch of a helper")
        async with asyncio.timeout(LOAD_LIMIT_S):
            header, _ = await self.call(load)
        if "invalid" in header:
            raise OSError(f"model files refused: {header['invalid']}")

    async def call(self, frame: bytes) -> tuple[Header, bytes]:
        """Raises OSError or EOFError when the process has ended."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(frame)
        except RuntimeError as error:  # what uvloop raises for a pipe that the process has closed
            raise BrokenPipeError(str(error)) from error
        await process.stdin.drain()
        lengths = await process.stdout.readexactly(LENGTHS)
        size = int.from_bytes(lengths[:4], "little")
        body = await process.stdout.readexactly(size + int.from_bytes(lengths[4:], "little"))
        return orjson.loads(body[:size]), body[size:]

    def usage(self) -> ProcessUsage | None:
        """None where there is no /proc, or no process any more."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return ProcessUsage(fields[0], (int(fields[11]) + int(fields[12])) / TICKS)

    async def code(self) -> int:
        """Its exit code; for a process that has closed its pipes: it is about to end by itself, else it is killed."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                return await self._process.wait()
        await self.kill()
        return await self._process.wait()

    async def kill(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                self._process.kill()
        await self._process.wait()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        self.gone.set()
