"""A fake leader as a process of its own, to kill, stop and bring back."""

import asyncio
import os
import signal

from support.patience import PATIENCE_S
from support.processes.forked import Forked
from support.router import fake_leader


class LeaderProcess:
    """`start` may be called again after `kill`: a new incarnation at the same address."""

    def __init__(self, address: str, *flags: str) -> None:
        self.address = address
        self._flags = flags
        self._process: Forked | None = None

    async def start(self) -> None:
        said, end = os.pipe()
        try:
            argv = ["--serve", self.address, *self._flags]
            self._process = Forked(fake_leader.main, argv, dict(os.environ), (end, 2))
        finally:
            os.close(end)
        with os.fdopen(said, "rb") as pipe:
            line = await asyncio.wait_for(asyncio.to_thread(pipe.readline), PATIENCE_S)
        assert line == b"serving\n", line

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        """At once, as by the kernel. Harmless when it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            await self.wait()

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.ended(PATIENCE_S)

    async def __aenter__(self) -> "LeaderProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
