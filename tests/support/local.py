"""`octavo run` as a user starts it, and what a client sees of it."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from support.bed import wait_until
from support.patience import PATIENCE_S


class LocalRun:
    """The process and everything that it has printed."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "octavo", "run", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    @property
    def text(self) -> str:
        return "".join(self._lines)

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
        code = self.process.wait(timeout_s)
        self._reader.join(PATIENCE_S)
        return code


@contextmanager
def local_run(*arguments: str | Path) -> Iterator[LocalRun]:
    run = LocalRun([str(argument) for argument in arguments])
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.terminate()
            try:
                run.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()


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
