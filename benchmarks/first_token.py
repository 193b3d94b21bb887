"""Milliseconds on the way to the first token, with the leader's own time taken out.

    path = (first byte at the client - request sent) - (first token emitted by the leader - request received by it)

Both differences are of one clock. All streams but one belong to a process of its own, so that what is measured is not
the client's queue; the one is a short request that comes at a random moment, again and again.

    routed   path of an HTTP client through the router
    direct   path of a gRPC client that speaks to the leader itself, all its streams on one call, as a router's are
    added    median routed - median direct: what the router adds to a direct connection to the same backend
    client   path of the same HTTP client to a server that answers at once: its own share, and the kernel's

Rounds alternate, so that other load on the machine meets both.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from http_load import Totals, connect
from subjects import Bench, completion, running, words

from octavo.proto.v1 import engine_pb2_grpc
from octavo.router.dispatch import wire
from octavo.router.jobs.generation import Job
from octavo.shared.sampling_params import SamplingParams

INTERVAL_S = 0.01
ROUNDS = 3
PROBES = 100  # a round
PAUSE_S = 0.03  # between probes, at the mean
LONG = 7000  # tokens of a stream that outlives its round
LOAD = Path(__file__).with_name("http_load.py")
Paths = dict[int, float]  # seconds from request to first token, by the request's seed


async def added(model: Path, streams: int) -> dict[str, Any]:
    source = random.Random(streams)
    routed: Paths = {}
    direct: Paths = {}
    client: Paths = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        async with running(model, INTERVAL_S, log) as bench:
            for seeds in [range(n * PROBES, (n + 1) * PROBES) for n in range(0, 2 * ROUNDS, 2)]:
                async with _load("--port", str(bench.port), "--streams", str(streams - 1)):
                    routed |= await _http_probes(bench.port, source, seeds)
                direct |= await _grpc_probes(bench, source, range(seeds.stop, seeds.stop + PROBES), streams - 1)
            async with _load("--serve", str(bench.port + 1)):
                client = await _http_probes(bench.port + 1, source, range(PROBES))
        leader = {seed: emitted - received for seed, received, emitted in json.loads(log.read_text())}
    through = sorted(1000 * (seconds - leader[seed]) for seed, seconds in routed.items())
    straight = sorted(1000 * (seconds - leader[seed]) for seed, seconds in direct.items())
    return {
        "streams": streams,
        "added_ms": round(statistics.median(through) - statistics.median(straight), 2),
        "routed_ms": _spread(through),
        "direct_ms": _spread(straight),
        "client_ms": _spread(sorted(1000 * seconds for seconds in client.values())),
        "requests": len(through),
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(values[len(values) * share // 100], 2) for share in (10, 50, 90)}


@asynccontextmanager
async def _load(*flags: str) -> AsyncIterator[None]:
    """http_load.py as a process of its own, ready."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(LOAD), *flags, stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        await process.stdout.readline()
    try:
        yield
    finally:
        process.terminate()
        await process.wait()
        await asyncio.sleep(0.3)


async def _http_probes(port: int, source: random.Random, seeds: range) -> Paths:
    seen: Paths = {}
    totals = Totals()
    connection = await connect(port, totals)
    for seed in seeds:
        request = completion(words(source, 20), 2, stream=True, seed=seed)
        await asyncio.sleep(source.expovariate(1 / PAUSE_S))
        await connection.send(request)
        seen[seed] = connection.first - connection.sent
    connection.close()
    assert not totals.failures, totals.failures[:1]
    return seen


async def _grpc_probes(bench: Bench, source: random.Random, seeds: range, others: int) -> Paths:
    channel = grpc.aio.insecure_channel(bench.address, options=wire.CHANNEL_OPTIONS)
    call = engine_pb2_grpc.EngineStub(channel).Serve()
    await call.write(wire.hello("", "bench"))
    firsts: dict[int, asyncio.Future[float]] = {}
    reader = asyncio.ensure_future(_first_rows(call, firsts))
    loop = asyncio.get_running_loop()
    seen: Paths = {}
    for number in range(1, others + 1):
        await call.write(wire.submit(number, _job(LONG, 2**32)))
    for number, seed in enumerate(seeds, others + 1):
        submit = wire.submit(number, _job(2, seed))
        await asyncio.sleep(source.expovariate(1 / PAUSE_S))
        firsts[number] = loop.create_future()
        sent = time.monotonic()
        await call.write(submit)
        seen[seed] = await firsts[number] - sent
    reader.cancel()
    call.cancel()
    await channel.close()
    return seen


async def _first_rows(call: Any, firsts: dict[int, asyncio.Future[float]]) -> None:  # Any: as generated
    async for message in call:
        now = time.monotonic()
        for number, *_ in wire.rows(message.output):
            first = firsts.get(number)
            if first is not None and not first.done():
                first.set_result(now)


def _job(max_tokens: int, seed: int) -> Job:
    return Job("bench", bytes(4 * 20), SamplingParams(seed=seed), max_tokens)
