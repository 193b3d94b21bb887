"""What a router process costs and adds: `python benchmarks/router.py [--out FILE] [--only NAME ...]`.

A real `octavo router` between a leader without an engine and a client that hardly parses, each a process of its own.

    stream   tokens streamed per CPU-second of the router process, a token every 10 ms in each of 64 and 256 streams;
             frames and reads per token beside it: tokens that pile up are cheaper, so such a run flatters
    flood    the same with a leader that gives tokens as fast as they are read, to streams that are asked for again when
             they end; tokens by the router's own count, as it may merge them
    single   one-token completions per CPU-second, prompts of 500 words
    added    milliseconds that the router adds to the first token, while 1, 64 and 256 streams run with a token every
             10 ms in each; first_token.py says how
    memory   resident MiB of the router process over 40,000 requests
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import record
import uvloop
from first_token import added
from http_load import Connection
from subjects import PACKAGES, closed_loop, completion, running, words

from octavo import bundled

INTERVAL_S = 0.01
Result = dict[str, Any]


async def stream(model: Path, streams: int, window_s: float) -> Result:
    """CPU between two moments at which every stream is running."""
    tokens = 4000
    async with running(model, INTERVAL_S) as bench:
        connections, totals = await bench.connections(streams)
        request = completion("tell a story", tokens, stream=True)
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
        "desired_tokens_per_s": round(streams / INTERVAL_S),
        "tokens_per_read": round(frames / reads, 2),
        "router_cpu_share": round(cpu / wall, 2),
    }


async def flood(model: Path, streams: int, window_s: float) -> Result:
    """The leader empties a stream in a moment: only streams that begin again keep it and the router busy."""
    request = completion("tell a story", 2000, stream=True)

    async def again(connection: Connection) -> None:
        while True:
            await connection.send(request)

    async with running(model, 0.0) as bench:
        connections, totals = await bench.connections(streams)
        loops = [asyncio.create_task(again(connection)) for connection in connections]
        await asyncio.sleep(1.0)
        cpu, tokens, frames, begun = bench.cpu_s(), await bench.tokens(), totals.frames, time.monotonic()
        await asyncio.sleep(window_s)
        cpu, tokens, frames = bench.cpu_s() - cpu, await bench.tokens() - tokens, totals.frames - frames
        wall = time.monotonic() - begun
        for loop, connection in zip(loops, connections, strict=True):
            loop.cancel()
            connection.close()
    assert not totals.failures, totals.failures[:1]
    return {
        "streams": streams,
        "tokens_per_cpu_s": round(tokens / cpu),
        "tokens_per_s": round(tokens / wall),
        "tokens_per_frame": round(tokens / frames, 2),
        "router_cpu_share": round(cpu / wall, 2),
    }


async def single(model: Path, count: int = 8000) -> Result:
    source = random.Random(1)
    requests = [completion(words(source, 500), 1) for _ in range(count)]
    async with running(model, 0.0) as bench:
        await closed_loop(bench, 64, requests[:500], lambda *_: None)
        cpu, begun = bench.cpu_s(), time.monotonic()
        await closed_loop(bench, 64, requests[500:], lambda *_: None)
        cpu, wall = bench.cpu_s() - cpu, time.monotonic() - begun
    return {"requests_per_cpu_s": round((count - 500) / cpu), "requests_per_s": round((count - 500) / wall)}


async def memory(model: Path, count: int = 40_000) -> Result:
    source = random.Random(3)
    resident: list[float] = []
    async with running(model, 0.0) as bench:
        for _ in range(8):
            requests = [completion(words(source, 50), 2, stream=n % 2 == 0) for n in range(count // 8)]
            await closed_loop(bench, 64, requests, lambda *_: None)
            resident.append(round(bench.resident_mib(), 1))
    return {"requests_each": count // 8, "resident_mib": resident}


async def _run(only: Sequence[str], window_s: float) -> Result:
    model = bundled.ensure("smollm2-135m-instruct")
    parts: dict[str, list[Callable[[], Awaitable[Result]]]] = {
        "stream": [lambda n=n: stream(model, n, window_s) for n in (64, 256)],
        "flood": [lambda: flood(model, 64, window_s)],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=record.RESULTS / "router-cpu.json")
    parser.add_argument("--only", nargs="*", default=(), help="stream, flood, single, added, memory")
    parser.add_argument("--window", type=float, default=10.0, help="seconds of each streaming measurement")
    flags = parser.parse_args()
    made_on = record.machine(PACKAGES)
    results = uvloop.run(_run(flags.only, flags.window))
    if not flags.only:
        record.write(flags.out, made_on, results)


if __name__ == "__main__":
    main()
