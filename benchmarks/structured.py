"""What JSON costs: `python benchmarks/structured.py [--streams N] [--tokens N] [--out FILE]`.

One engine with the bundled model behind one router. Streams of N tokens each: all free, all bound to a JSON schema, and
half of each beside each other. Output tokens a second of each kind, and what the free ones lose when their neighbours
are bound instead of free.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

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


async def _stream(session: aiohttp.ClientSession, url: str, tokens: int, number: int, wish: dict[str, Any]) -> float:
    """Output tokens a second of one stream, its first token not counted."""
    body = {
        "model": "local", "prompt": f"{number} facts about the sea:", "max_tokens": tokens, "seed": number,
        "temperature": 0.8, "stream": True, "stream_options": {"include_usage": True}, **wish,
    }  # fmt: skip
    first = 0.0
    count = 0
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event["choices"] and not first:
                first = time.monotonic()
            if event.get("usage"):
                count = event["usage"]["completion_tokens"]
    return (count - 1) / (time.monotonic() - first)


async def _measure(url: str, streams: int, tokens: int) -> dict[str, float]:
    timeout = aiohttp.ClientTimeout(total=3600)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def run(wishes: list[dict[str, Any]]) -> list[float]:
            return await asyncio.gather(*(_stream(session, url, tokens, n, wish) for n, wish in enumerate(wishes)))

        half = streams // 2
        await run([FREE, BOUND])  # compiles the schema
        free = await run([FREE] * streams)
        bound = await run([BOUND] * streams)
        mixed = await run([FREE] * half + [BOUND] * half)
    beside, alone = sum(mixed[:half]) / half, sum(free) / streams
    return {
        "free": sum(free),
        "bound": sum(bound),
        "mixed, free half": sum(mixed[:half]),
        "mixed, bound half": sum(mixed[half:]),
        "a free stream loses": 1 - beside / alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "structured-cpu.json")
    arguments = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from support.local import local_run

    made_on = record.machine(["llguidance", "torch", "tokenizers"])
    with local_run("--served-name", "local", "--device", "cpu", "--max-requests", str(arguments.streams)) as run:
        found = asyncio.run(_measure(run.until_serving(300), arguments.streams, arguments.tokens))
    print(f"{arguments.streams} streams of {arguments.tokens} tokens; output tokens/s of all streams of a kind")
    for name, value in found.items():
        print(f"  {name:22} {value:10.1%}" if "loses" in name else f"  {name:22} {value:10.1f}")
    print(f"  wanted: a free stream loses at most {LIMIT:.0%}")
    record.write(arguments.out, made_on, {"streams": arguments.streams, "tokens": arguments.tokens} | found)


if __name__ == "__main__":
    main()
