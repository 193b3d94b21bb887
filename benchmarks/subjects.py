"""What the router's benchmarks run: a real router between a leader without an engine and their own client."""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from http_load import Connection, Totals, connect, post
from tokenizers import Tokenizer

ROOT = Path(__file__).parent.parent
LEADER = ROOT / "tests" / "support" / "router" / "fake_leader.py"
TEXT = "the river runs under the old stone bridge and the wind moves through tall grass near the quiet town " * 4
WORDS = TEXT.split() + "house tree light water mountain summer letter window garden market music paper".split()
PORT = 18431
METRICS, GRPC = 2, 3  # their ports, after the router's; the one between is the first-token client's
PACKAGES = ("grpcio", "protobuf", "aiohttp", "uvloop", "tokenizers", "orjson")
TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    """A leader and a router, running."""

    def __init__(self, port: int, address: str, router_pid: int) -> None:
        self.port = port
        self.address = address
        self.router_pid = router_pid

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.router_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    async def tokens(self) -> int:
        """Tokens that the router has had from the leader: what it merges for a slow reader counts as what it was."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port + METRICS)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        (total,) = (line.split()[1] for line in lines if line.startswith("octavo_router_completion_tokens_total "))
        return int(float(total))

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.router_pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def connections(self, count: int) -> tuple[list[Connection], Totals]:
        totals = Totals()
        return [await connect(self.port, totals) for _ in range(count)], totals


@asynccontextmanager
async def running(model: Path, interval_s: float, log: Path | None = None) -> AsyncIterator[Bench]:
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as folder:
        address = f"unix:{folder}/leader"
        flags = ["--serve", address, "--interval", str(interval_s), "--ids", json.dumps(ids), "--tokenizer", str(model)]
        leader = await begun([str(LEADER), *flags, *(["--log", str(log)] if log else [])])
        ports = ["--http", f"127.0.0.1:{PORT}", "--metrics", f"127.0.0.1:{PORT + METRICS}"]
        ports += ["--grpc", f"127.0.0.1:{PORT + GRPC}"]
        router = await begun(["-m", "octavo", "router", *ports, "--group", address])
        try:
            yield Bench(PORT, address, await ready(PORT, router.pid))
        finally:
            for process in (router, leader):
                process.terminate()
                async with asyncio.timeout(60):
                    await process.wait()


async def begun(arguments: Sequence[str]) -> asyncio.subprocess.Process:
    quiet = subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=quiet, stderr=quiet)


async def ready(port: int, parent: int) -> int:
    """The pid of the one router process, once it has answered a completion."""
    request = post("/v1/completions", json.dumps({"model": "fake", "prompt": "hello", "max_tokens": 1}).encode())
    async with asyncio.timeout(60):
        while True:
            totals = Totals()
            try:
                connection = await connect(port, totals)
                await connection.send(request)
                connection.close()
                if not totals.failures:
                    break
            except OSError:
                pass
            await asyncio.sleep(0.2)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = [pid for pid in children if b"octavo.router.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1, found
    return int(found[0])


def completion(prompt: str, max_tokens: int, **fields: Any) -> bytes:
    body = {"model": "fake", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields}
    return post("/v1/completions", json.dumps(body).encode())


def words(source: random.Random, count: int) -> str:
    return " ".join(source.choices(WORDS, k=count))


async def closed_loop(
    bench: Bench, concurrency: int, requests: Sequence[bytes], done: Callable[[int, Connection], Awaitable[None] | None]
) -> None:
    """Each connection sends its next request when the last is answered."""
    connections, totals = await bench.connections(concurrency)
    left = iter(range(len(requests)))

    async def work(connection: Connection) -> None:
        for index in left:
            await connection.send(requests[index])
            done(index, connection)

    await asyncio.gather(*(work(connection) for connection in connections))
    for connection in connections:
        connection.close()
    assert not totals.failures, totals.failures[:1]
