"""A fake leader as a process of its own, to kill, stop and bring back."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from support.patience import PATIENCE_S

SCRIPT = Path(__file__).with_name("fake_leader.py")


class LeaderProcess:
    """`start` may be called again after `kill`: a new incarnation at the same address."""

    def __init__(self, address: str, *flags: str) -> None:
        self.address = address
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), "--serve", self.address, *self._flags, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        assert line == b"serving\n", line

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """At once, as by the kernel. Harmless when it is gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def __aenter__(self) -> "LeaderProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
