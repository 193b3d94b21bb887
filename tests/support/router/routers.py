"""A real router, as a process, in front of leaders of the test's own."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from support.patience import PATIENCE_S
from support.processes import commands
from support.processes.forked import Forked, Main
from support.processes.ports import free_port


@dataclass(frozen=True, slots=True)
class RunningRouter:
    process: Forked
    url: str
    metrics_url: str
    grpc: str  # host:port
    session: aiohttp.ClientSession

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, dict]:  # JSON of any shape
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def raw(self, path: str, body: bytes) -> tuple[int, dict]:
        async with self.session.post(self.url + path, data=body) as response:
            return response.status, await response.json()

    async def status(self, path: str) -> int:
        async with self.session.get(self.url + path) as response:
            return response.status

    async def events(self, path: str, body: dict) -> list[str]:
        """The data of each event of a stream that was accepted."""
        async with self.session.post(self.url + path, json=body | {"stream": True}) as response:
            assert response.status == 200, await response.text()
            text = (await response.read()).decode()
        return [line.removeprefix("data: ") for line in text.split("\n\n") if line]

    async def metrics(self) -> str:
        async with self.session.get(self.metrics_url) as response:
            return await response.text()

    async def sample(self, name: str) -> float:
        """The sum of a metric's samples over its labels."""
        lines = [line for line in (await self.metrics()).splitlines() if line.partition("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.ended(PATIENCE_S)


@asynccontextmanager
async def routing(
    groups: Sequence[str], *flags: str, ready: bool = True, log: Path | None = None, main: Main = commands.main
) -> AsyncIterator[RunningRouter]:
    """Ready means that a group serves; else the process only listens. log: where it writes; else with the test's own
    output. main: what runs `octavo`."""
    http, grpc, metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
    places = ["--http", http, "--grpc", grpc, "--metrics", metrics]
    places += [part for group in groups for part in ("--group", group)]
    with tempfile.NamedTemporaryFile() as written:
        process = Forked(main, ["router", *places, *flags], dict(os.environ), log or Path(written.name))
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            router = RunningRouter(process, f"http://{http}", f"http://{metrics}/metrics", grpc, session)
            try:
                await _until(router, "/readyz" if ready else "/livez", log or Path(written.name))
                yield router
            finally:
                process.kill()
                await process.ended(PATIENCE_S)
                sys.stderr.write(Path(written.name).read_text())


async def _until(router: RunningRouter, path: str, log: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if await router.status(path) == 200:
                    return
            except aiohttp.ClientError:
                code = router.process.poll()
                assert code is None, f"the router ended while starting, exit code {code}: {_last_line(log)}"
            await asyncio.sleep(0.05)


def _last_line(log: Path) -> str:
    return log.read_text().rstrip().rpartition("\n")[2] if log.exists() else "it wrote nothing"
