"""What JSON costs: `python benchmarks/structured.py [--streams N] [--tokens N] [--rounds N] [--out FILE]`.

One engine with the bundled model behind one router. Streams of N tokens each: all free, all bound to a JSON schema, and
half of each beside each other, in turn; medians of the rounds.

- Output tokens a second of each kind, while all streams are under way: from the last first token to the first end. How
  prompts that come together share a step at the beginning is chance, and says nothing of what binding costs.
- What the free ones lose then when their neighbours are bound instead of free.
- CPU of the processes for each token, beginning included: on a CPU both share the cores. It can be compared on a busy
  machine, too.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import record

TESTS = record.ROOT / "tests"
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}, "minItems": 1_000}},
    "required": ["facts"],
    "additionalProperties": False,
}  # nothing that matches it ends within these tokens
FREE: dict[str, Any] = {"ignore_eos": True}
BOUND: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": {"name": "facts", "schema": SCHEMA}}}
LIMIT = 0.05  # that a free stream may lose
TICKS = os.sysconf("SC_CLK_TCK")


class Heard(NamedTuple):
    """Of one stream. seen: when each usage came, and output tokens until then."""

    seen: list[tuple[float, int]]

    @property
    def tokens(self) -> int:
        return self.seen[-1][1]

    def until(self, moment: float) -> int:
        return max((count for at, count in self.seen if at <= moment), default=0)


async def _stream(session: aiohttp.ClientSession, url: str, tokens: int, number: int, fields: dict[str, Any]) -> Heard:
    body = {
        "model": "local", "prompt": f"{number} facts about the sea:", "max_tokens": tokens, "seed": number,
        "temperature": 0.8, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **fields,
    }  # fmt: skip
    seen = []
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise SystemExit(f"stream {number}: {event['error']['message']}")
            seen.append((time.monotonic(), event["usage"]["completion_tokens"]))
    return Heard(seen)


def _rates(kinds: Sequence[Sequence[Heard]]) -> list[float]:
    """Output tokens a second of each kind's streams together, while all streams of all kinds are under way."""
    every = [heard.seen for kind in kinds for heard in kind]
    begin, end = max(seen[0][0] for seen in every), min(seen[-1][0] for seen in every)
    if end <= begin:
        raise SystemExit("some streams ended before others began: measure with more --tokens")
    return [sum(one.until(end) - one.until(begin) for one in kind) / (end - begin) for kind in kinds]


def _processes(pid: int) -> list[int]:
    """The process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in _processes(int(child)))]


def _cpu_s(pids: Sequence[int]) -> float:
    spent = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / TICKS


async def _measure(url: str, pid: int, streams: int, tokens: int, rounds: int) -> dict[str, float]:
    timeout = aiohttp.ClientTimeout(total=3600)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def run(*kinds: list[dict[str, Any]]) -> tuple[list[float], float]:
            """Rates of the kinds; milliseconds of CPU a token."""
            bodies = [body for kind in kinds for body in kind]
            pids = _processes(pid)
            before = _cpu_s(pids)
            heard = await asyncio.gather(*(_stream(session, url, tokens, n, body) for n, body in enumerate(bodies)))
            spent = _cpu_s(pids) - before
            parts, at = [], 0
            for kind in kinds:
                parts.append(heard[at : at + len(kind)])
                at += len(kind)
            return _rates(parts), 1e3 * spent / sum(one.tokens for one in heard)

        half = streams // 2
        for body in (FREE, BOUND):  # which compiles the schema
            await _stream(session, url, 2, 0, body)
        found: list[dict[str, float]] = []
        for _ in range(rounds):
            (free,), free_cpu = await run([FREE] * streams)
            (beside_free, beside_bound), mixed_cpu = await run([FREE] * half, [BOUND] * half)
            (bound,), bound_cpu = await run([BOUND] * streams)
            found.append(
                {
                    "free": free,
                    "bound": bound,
                    "mixed, free half": beside_free,
                    "mixed, bound half": beside_bound,
                    "free, ms of CPU a token": free_cpu,
                    "mixed, ms of CPU a token": mixed_cpu,
                    "bound, ms of CPU a token": bound_cpu,
                }
            )
    middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return middle | {"a free stream loses": 1 - 2 * middle["mixed, free half"] / middle["free"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "structured-cpu.json")
    arguments = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from support.processes.local import local_run

    made_on = record.machine(["llguidance", "torch", "tokenizers"])
    with local_run("--served-name", "local", "--device", "cpu", "--max-requests", str(arguments.streams)) as run:
        url = run.until_serving(300)
        try:
            found = asyncio.run(_measure(url, run.process.pid, arguments.streams, arguments.tokens, arguments.rounds))
        except SystemExit:
            print(run.text)
            raise
    print(f"{arguments.streams} streams of {arguments.tokens} tokens; output tokens/s of all streams of a kind")
    for name, value in found.items():
        print(f"  {name:26} {value:8.1%}" if "loses" in name else f"  {name:26} {value:8.2f}")
    print(f"  wanted: a free stream loses at most {LIMIT:.0%}")
    record.write(arguments.out, made_on, {"streams": arguments.streams, "tokens": arguments.tokens} | found)


if __name__ == "__main__":
    main()
