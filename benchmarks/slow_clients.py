"""What slow clients cost others: `python benchmarks/slow_clients.py [--out FILE] [--clients N] [--only KIND ...]`.

A real `octavo router` before a leader without an engine. Eight good clients ask for 8 tokens each, one request after
the other, alone and beside N slow clients of one kind, in turn:

    head           sent the beginning of a request's head and stopped
    body           sent a body of 1 MiB but for its last byte
    unread         asked for a stream of 7,000 tokens and never read
    grpc message   sent 60 kB of a message of 8 MiB
    grpc unread    asked for a stream over gRPC and takes nothing

Of the good clients' requests the p50 and p99 in milliseconds, alone and beside; how often the p99 alone goes into the
one beside; and what a slow client takes of the router's memory.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import record
import uvloop
from slow_load import KINDS
from subjects import GRPC, Bench, completion, running

from octavo import bundled

GOOD = 8
TOKENS, INTERVAL_S = 8, 0.02
WINDOW_S = 5.0
SETTLE_S = 1.0  # for slow clients that have begun
LIMIT = 2.0  # that the p99 may grow to
LOAD = Path(__file__).with_name("slow_load.py")


@asynccontextmanager
async def _slow(kind: str, bench: Bench, count: int) -> AsyncIterator[None]:
    port = bench.port + (GRPC if kind.startswith("grpc") else 0)
    command = [sys.executable, str(LOAD), kind, str(port), str(count)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        await asyncio.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        await process.wait()


async def _good(bench: Bench, window_s: float) -> list[float]:
    """Seconds of each request that ended within the window."""
    connections, totals = await bench.connections(GOOD)
    request, taken = completion("tell a story", TOKENS, stream=True), list[float]()
    end = time.monotonic() + window_s

    async def again(index: int) -> None:
        while (begun := time.monotonic()) < end:
            await connections[index].send(request)
            taken.append(time.monotonic() - begun)

    await asyncio.gather(*(again(index) for index in range(GOOD)))
    for connection in connections:
        connection.close()
    assert not totals.failures, totals.failures[:1]
    return taken


async def measure(model: Path, kind: str, clients: int, rounds: int) -> dict[str, Any]:
    alone, beside, grown = list[float](), list[float](), list[float]()
    async with running(model, INTERVAL_S) as bench:
        await _good(bench, 1.0)
        for _ in range(rounds):
            alone += await _good(bench, WINDOW_S)
            before = bench.resident_mib()
            async with _slow(kind, bench, clients):
                beside += await _good(bench, WINDOW_S)
                grown.append(bench.resident_mib() - before)
            await asyncio.sleep(SETTLE_S)
    p99 = _percentiles(alone)[98], _percentiles(beside)[98]
    return {
        "kind": kind,
        "clients": clients,
        "requests": [len(alone), len(beside)],
        "p50_ms": [round(_percentiles(each)[49], 1) for each in (alone, beside)],
        "p99_ms": [round(each, 1) for each in p99],
        "p99_ratio": round(p99[1] / p99[0], 2),
        "kib_a_client": round(max(0.0, *grown) * 1024 / clients, 1),
    }


def _percentiles(seconds: list[float]) -> list[float]:
    return [1000 * cut for cut in statistics.quantiles(seconds, n=100)]


async def _run(kinds: list[str], clients: int, rounds: int) -> list[dict[str, Any]]:
    model = bundled.ensure("smollm2-135m-instruct")
    results = []
    for kind in kinds:
        results.append(await measure(model, kind, clients, rounds))
        print(json.dumps(results[-1]), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=record.RESULTS / "slow-clients-cpu.json")
    parser.add_argument("--clients", type=int, default=200, help="slow ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=tuple(KINDS), default=(), help="kinds; then nothing is written")
    flags = parser.parse_args()
    made_on = record.machine(("grpcio", "aiohttp", "uvloop"))
    results = uvloop.run(_run(list(flags.only or KINDS), flags.clients, flags.rounds))
    if not flags.only:
        record.write(flags.out, made_on, results)
    if slow := [one["kind"] for one in results if one["p99_ratio"] > LIMIT]:
        raise SystemExit(f"beside {', '.join(slow)}: others' p99 more than {LIMIT:g} times what it is alone")


if __name__ == "__main__":
    main()
