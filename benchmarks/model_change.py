"""What clients see of a change of the model: `python benchmarks/model_change.py [--out FILE]`.

Four groups of one model are replaced by four of another, one after another: a new one is started, serves, and an old
one drains, as in a rollout with maxSurge 1. Leaders are without an engine: each runs SLOTS requests at once, of 1 to 2
s. Requests arrive at random, at 70 % of what four groups take. Both models have the same tokenizer, loaded twice.

    first token   milliseconds from a request to its first byte, before, during and after the change
    failed        requests that got no whole answer
    new groups    their share of the requests of each phase, and of all groups
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import record
from http_load import Totals, connect
from subjects import GRPC, LEADER, METRICS, PORT, begun, completion, ready, words

from octavo import bundled

GROUPS, SLOTS, LOAD = 4, 8, 0.7
INTERVAL_S, TOKENS = 0.02, (50, 100)
STEADY_S, SERVING_S = 30.0, 5.0  # before and after the change; between a group that serves and the end of an old one


class Group:
    """A leader of a process of its own."""

    def __init__(self, folder: Path, model: Path, digest: str, index: int) -> None:
        self.address = f"unix:{folder}/{digest}{index}"
        self.log = folder / f"{digest}{index}.json"
        self._flags = ["--serve", self.address, "--interval", str(INTERVAL_S), "--tokenizer", str(model)]
        self._flags += ["--slots", str(SLOTS), "--digest", digest, "--log", str(self.log), "--grace", "60"]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until it serves."""
        self._process = await begun([str(LEADER), *self._flags])
        async with asyncio.timeout(120):
            while not Path(self.address.removeprefix("unix:")).exists():
                await asyncio.sleep(0.05)

    async def drain(self) -> None:
        """Until what it runs has ended."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        async with asyncio.timeout(120):
            await self._process.wait()


class Load:
    """Requests that arrive at random. first: (when, milliseconds to the first byte) of each; failed: of whole ones."""

    def __init__(self, source: random.Random) -> None:
        self.first: list[tuple[float, float]] = []
        self.failed: list[bytes] = []
        self._source = source
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """For ever."""
        per_s = LOAD * GROUPS * SLOTS / (INTERVAL_S * sum(TOKENS) / 2)
        while True:
            await asyncio.sleep(self._source.expovariate(per_s))
            task = asyncio.create_task(self._ask(words(self._source, 30), self._source.randint(*TOKENS)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _ask(self, prompt: str, tokens: int) -> None:
        totals, begin = Totals(), time.monotonic()
        connection = await connect(PORT, totals)
        await connection.send(completion(prompt, tokens, stream=True))
        connection.close()
        self.failed += totals.failures
        self.first.append((begin, 1000 * (connection.first - connection.sent)))


@asynccontextmanager
async def router(groups: list[Group]) -> AsyncIterator[None]:
    ports = ["--http", f"127.0.0.1:{PORT}", "--metrics", f"127.0.0.1:{PORT + METRICS}"]
    ports += ["--grpc", f"127.0.0.1:{PORT + GRPC}"]
    ports += [flag for one in groups for flag in ("--group", one.address)]
    process = await begun(["-m", "octavo", "router", *ports])
    try:
        await ready(PORT, process.pid)
        yield
    finally:
        process.terminate()
        await process.wait()


async def measure(model: Path) -> dict[str, Any]:
    load = Load(random.Random(0))
    marks: list[float] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-bench-")))
        old, new = ([Group(folder, model, digest, index) for index in range(GROUPS)] for digest in ("old", "new"))
        for group in old:
            await group.start()
            stack.push_async_callback(group.drain)
        await stack.enter_async_context(router([*old, *new]))
        arriving = asyncio.create_task(load.run())
        await asyncio.sleep(STEADY_S)
        marks.append(time.monotonic())
        for going, coming in zip(old, new, strict=True):
            await coming.start()
            stack.push_async_callback(coming.drain)
            await asyncio.sleep(SERVING_S)
            await going.drain()
        marks.append(time.monotonic())
        await asyncio.sleep(STEADY_S)
        arriving.cancel()
        await load.settle()
        for group in new:
            await group.drain()
        logs = [(group in new, json.loads(group.log.read_text())) for group in (*old, *new)]
    received = [(at, is_new) for is_new, log in logs for _, at, _ in log]
    phases = {"before": (0.0, marks[0]), "during": (marks[0], marks[1]), "after": (marks[1], float("inf"))}
    return {
        "failed": len(load.failed),
        "requests": len(load.first),
        **{name: _phase(load, received, *bounds) for name, bounds in phases.items()},
    }


def _phase(load: Load, received: list[tuple[float, bool]], begin: float, end: float) -> dict[str, Any]:
    first = sorted(ms for at, ms in load.first if begin <= at < end)
    at_new = [is_new for at, is_new in received if begin <= at < end]
    return {
        "requests": len(first),
        "first_token_ms": {f"p{share}": round(first[len(first) * share // 100], 1) for share in (50, 90, 99)},
        "share_of_new": round(sum(at_new) / len(at_new), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "model-change-cpu.json")
    arguments = parser.parse_args()
    made_on = record.machine(["grpcio", "tokenizers"])
    results = asyncio.run(measure(bundled.ensure("smollm2-135m-instruct")))
    print(json.dumps(results, indent=1))
    during, before = (results[name]["first_token_ms"]["p99"] for name in ("during", "before"))
    print(f"p99 of the first token while the model changed: {during / before:.2f} times the one before")
    record.write(arguments.out, made_on, results)


if __name__ == "__main__":
    main()
