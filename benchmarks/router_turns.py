"""CPU of one-token completions of 500 words: this tree's router and another tree's, running side by side and loaded by
turns, so that whatever else the machine does meets both.

    git worktree add --detach /tmp/before COMMIT && python benchmarks/router_turns.py --against /tmp/before

Prints the microseconds of each router's process for a request (median and least of the turns), and this tree's share of
the other's: the median of the turns' ratios, with the mean and its standard error. A library that the other tree
builds (kernels/lib) must lie there.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import record
import uvloop
from subjects import PACKAGES, PORT, ROOT, TEXT, Bench, closed_loop, completion, ready, words
from tokenizers import Tokenizer

from octavo import bundled

A_TURN = 400  # requests
STREAMS = 64
LEADERS = ("tests/support/router/fake_leader.py", "tests/support/fake_leader.py")  # where it lies, and where it lay


def cpu_ns(pid: int) -> int:
    """Of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


async def started(stack: AsyncExitStack, tree: Path, port: int, model: Path, folder: Path) -> Bench:
    """A router of this tree, in front of the tree's own leader without an engine."""
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    leader = next(tree / name for name in LEADERS if (tree / name).exists())
    address = f"unix:{folder}/{port}"
    flags = ["--serve", address, "--interval", "0", "--ids", json.dumps(ids), "--tokenizer", str(model)]
    ports = ["--http", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{port + 2}", "--grpc", f"127.0.0.1:{port + 3}"]
    pids = []
    for arguments in ([str(leader), *flags], ["-m", "octavo", "router", *ports, "--group", address]):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        pids.append(process.pid)
    return Bench(port, address, await ready(port, pids[1]))


async def turn(bench: Bench, requests: list[bytes]) -> float:
    """Microseconds of the router's process for a request."""
    before = cpu_ns(bench.router_pid)
    await closed_loop(bench, STREAMS, requests, lambda *_: None)
    return (cpu_ns(bench.router_pid) - before) / len(requests) / 1000


async def measured(other: Path, turns: int) -> dict[str, Any]:
    model = bundled.ensure("smollm2-135m-instruct")
    source = random.Random(1)
    requests = [completion(words(source, 500), 1) for _ in range(5 * A_TURN)]
    costs: list[list[float]] = [[], []]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-bench-")))
        trees = (ROOT.resolve(), other.resolve())
        benches = [await started(stack, tree, PORT + 10 * at, model, folder) for at, tree in enumerate(trees)]
        for number in range(turns + 2):  # the first two warm up
            part = [requests[(number * A_TURN + at) % len(requests)] for at in range(A_TURN)]
            for at in (0, 1) if number % 2 else (1, 0):
                cost = await turn(benches[at], part)
                if number >= 2:
                    costs[at].append(cost)
    ratios = [ours / theirs for ours, theirs in zip(*costs, strict=True)]
    named = dict(zip(("this", "other"), costs, strict=True))
    return {
        "microseconds": {
            name: {"median": round(statistics.median(took)), "least": round(min(took))} for name, took in named.items()
        },
        "share": {
            "median": round(statistics.median(ratios), 3),
            "mean": round(statistics.mean(ratios), 3),
            "standard_error": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 3),
        },
        "turns": turns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", type=Path, required=True, help="folder of the other tree")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "router-turns-cpu.json")
    flags = parser.parse_args()
    made_on = record.machine(PACKAGES)
    results = uvloop.run(measured(flags.against, flags.turns))
    print(json.dumps(results))
    record.write(flags.out, made_on, results)


if __name__ == "__main__":
    main()
