"""`octavo run` as a user starts it, and what a client sees of it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from support.cluster.bed import wait_until
from support.patience import PATIENCE_S
from support.processes import commands
from support.processes.forked import Forked, Main, StillRunning


class LocalRun:
    """The process and everything that it has printed. forked: else it has an interpreter of its own, as a user's, and
    `environment` beside this process's own. main: what runs `octavo ARGV` in the forked process."""

    def __init__(
        self,
        arguments: list[str],
        forked: bool = True,
        environment: Mapping[str, str] | None = None,
        main: Main = commands.main,
    ) -> None:
        argv = ["run", "--port", "0", *arguments]
        self._log = tempfile.NamedTemporaryFile()
        self.process: Forked | subprocess.Popen[bytes]
        if forked:
            self.process = Forked(main, argv, dict(os.environ), Path(self._log.name))
        else:
            command = [sys.executable, "-m", "octavo", *argv]
            with open(self._log.name, "ab") as log:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | dict(environment or {})
                )

    @property
    def text(self) -> str:
        return Path(self._log.name).read_text()

    @property
    def url(self) -> str:
        """http://host:port, once it is printed."""
        found = re.search(r"Serving .* at (http://\S+)/v1", self.text)
        return found[1] if found else ""

    def until_serving(self, timeout_s: float = PATIENCE_S) -> str:
        wait_until(lambda: self.url or self.process.poll() is not None, timeout_s, "octavo run serves")
        assert self.url, self.text
        return self.url

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout_s)


@contextmanager
def local_run(
    *arguments: str | Path,
    forked: bool = True,
    environment: Mapping[str, str] | None = None,
    main: Main = commands.main,
) -> Iterator[LocalRun]:
    run = LocalRun([str(argument) for argument in arguments], forked, environment, main)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(PATIENCE_S)
            except (StillRunning, subprocess.TimeoutExpired):
                run.process.kill()
                run.process.wait(10)


async def complete(url: str, key: str | None = None, **fields: object) -> tuple[int, dict[str, object]]:
    """One completion that is not streamed: (status, body)."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    body = {"model": "local", "prompt": "a", "temperature": 0, "max_tokens": 8, **fields}
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{url}/v1/completions", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def many(url: str, count: int, key: str | None = None, **fields: object) -> list[tuple[int, dict[str, object]]]:
    """`count` completions at once."""
    return await asyncio.gather(*(complete(url, key, **fields) for _ in range(count)))
