"""What a router process costs and adds: `python benchmarks/router.py [--out FILE] [--only NAME ...]`.

A real `octavo router` between a leader without an engine and a client that hardly parses, each a process of its own.

    stream   tokens streamed per CPU-second of the router process, a token every 10 ms in each of 64 and 256 streams;
             frames and reads per token beside it: tokens that pile up are cheaper, so such a run flatters
    flood    the same with a leader that gives tokens as fast as they are read
    single   one-token completions per CPU-second, prompts of 500 words
    added    milliseconds that the router adds to the first token: (client's first byte - send) - (leader's emission -
             receipt) of each request, at 1, 64 and 256 concurrent streams with a token every 10 ms
    memory   resident MiB of the router process over 40,000 requests
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop
from http_load import Connection, Totals, connect, post
from tokenizers import Tokenizer

from octavo import bundled

ROOT = Path(__file__).parent.parent
LEADER = ROOT / "tests" / "support" / "fake_leader.py"
TEXT = "the river runs under the old stone bridge and the wind moves through tall grass near the quiet town " * 4
WORDS = TEXT.split() + "house tree light water mountain summer letter window garden market music paper".split()
INTERVAL_S = 0.01
TICKS = os.sysconf("SC_CLK_TCK")
Result = dict[str, Any]


class Bench:
    """A leader and a router, running."""

    def __init__(self, port: int, router_pid: int) -> None:
        self.port = port
        self.router_pid = router_pid

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.router_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

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
        leader = await _start([str(LEADER), *flags, *(["--log", str(log)] if log else [])])
        router = await _start(["-m", "octavo", "router", "--http", "127.0.0.1:18431", "--group", address])
        try:
            yield Bench(18431, await _ready(18431, router.pid))
        finally:
            for process in (router, leader):
                process.terminate()
                async with asyncio.timeout(60):
                    await process.wait()


async def _start(arguments: Sequence[str]) -> asyncio.subprocess.Process:
    quiet = subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=quiet, stderr=quiet)


async def _ready(port: int, parent: int) -> int:
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


def _completion(prompt: str, max_tokens: int, **fields: Any) -> bytes:
    body = {"model": "fake", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields}
    return post("/v1/completions", json.dumps(body).encode())


def _words(source: random.Random, count: int) -> str:
    return " ".join(source.choices(WORDS, k=count))


async def stream(model: Path, streams: int, interval_s: float, window_s: float) -> Result:
    """CPU between two moments at which every stream is running."""
    tokens = 4000
    async with running(model, interval_s) as bench:
        connections, totals = await bench.connections(streams)
        request = _completion("tell a story", tokens, stream=True)
        for connection in connections:
            connection.send(request)
        await asyncio.gather(*(connection.begun for connection in connections if connection.begun is not None))
        await asyncio.sleep(1.0)
        cpu, frames, reads, begun = bench.cpu_s(), totals.frames, totals.reads, time.monotonic()
        await asyncio.sleep(window_s)
        cpu, frames, reads = bench.cpu_s() - cpu, totals.frames - frames, totals.reads - reads
        wall = time.monotonic() - begun
        for connection in connections:
            connection.close()
    assert not totals.failures, totals.failures[:1]
    return {
        "streams": streams,
        "tokens_per_cpu_s": round(frames / cpu),
        "tokens_per_s": round(frames / wall),
        "wished_tokens_per_s": round(streams / interval_s) if interval_s else None,
        "tokens_per_read": round(frames / reads, 2),
        "router_cpu_share": round(cpu / wall, 2),
    }


async def _closed_loop(
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


async def single(model: Path, count: int = 8000) -> Result:
    source = random.Random(1)
    requests = [_completion(_words(source, 500), 1) for _ in range(count)]
    async with running(model, 0.0) as bench:
        await _closed_loop(bench, 64, requests[:500], lambda *_: None)
        cpu, begun = bench.cpu_s(), time.monotonic()
        await _closed_loop(bench, 64, requests[500:], lambda *_: None)
        cpu, wall = bench.cpu_s() - cpu, time.monotonic() - begun
    return {"requests_per_cpu_s": round((count - 500) / cpu), "requests_per_s": round((count - 500) / wall)}


async def added(model: Path, concurrency: int) -> Result:
    source = random.Random(2)
    count = max(8 * concurrency, 100)
    # Answers of many lengths: equal ones would end, and the next requests come, all in the same moment.
    requests = [
        _completion(_words(source, 20), source.randint(20, 100), stream=True, seed=index) for index in range(count)
    ]
    seen: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        async with running(model, INTERVAL_S, log) as bench:

            def done(index: int, connection: Connection) -> None:
                seen[index] = connection.first - connection.sent

            await _closed_loop(bench, concurrency, requests, done)
        emissions = {seed: emitted - received for seed, received, emitted in json.loads(log.read_text())}
    extra = sorted(1000 * (seen[index] - emissions[index]) for index in seen if index >= 3 * concurrency)
    return {
        "concurrency": concurrency,
        "median_ms": round(statistics.median(extra), 2),
        "p90_ms": round(extra[int(0.9 * len(extra))], 2),
        "requests": len(extra),
    }


async def memory(model: Path, count: int = 40_000) -> Result:
    source = random.Random(3)
    resident: list[float] = []
    async with running(model, 0.0) as bench:
        for _ in range(8):
            requests = [_completion(_words(source, 50), 2, stream=n % 2 == 0) for n in range(count // 8)]
            await _closed_loop(bench, 64, requests, lambda *_: None)
            resident.append(round(bench.resident_mib(), 1))
    return {"requests_each": count // 8, "resident_mib": resident}


async def _run(only: Sequence[str], window_s: float) -> Result:
    model = bundled.ensure("smollm2-135m-instruct")
    parts: dict[str, list[Callable[[], Awaitable[Result]]]] = {
        "stream": [lambda n=n: stream(model, n, INTERVAL_S, window_s) for n in (64, 256)],
        "flood": [lambda n=n: stream(model, n, 0.0, window_s / 2) for n in (64,)],
        "single": [lambda: single(model)],
        "added": [lambda n=n: added(model, n) for n in (1, 64, 256)],
        "memory": [lambda: memory(model)],
    }
    results: Result = {}
    for name in only or parts:
        for part in parts[name]:
            results.setdefault(name, []).append(await part())
            print(name, json.dumps(results[name][-1]), flush=True)
    return results


def _machine() -> Result:
    cpu = next(
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    )
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    packages = ("grpcio", "protobuf", "aiohttp", "uvloop", "tokenizers", "orjson")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "commit": commit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "router-cpu.json")
    parser.add_argument("--only", nargs="*", default=(), help="stream, flood, single, added, memory")
    parser.add_argument("--window", type=float, default=10.0, help="seconds of each streaming measurement")
    flags = parser.parse_args()
    results = {"machine": _machine(), **uvloop.run(_run(flags.only, flags.window))}
    if not flags.only:
        flags.out.write_text(json.dumps(results, indent=2) + "\n")
        print(f"written to {flags.out}")


if __name__ == "__main__":
    main()
