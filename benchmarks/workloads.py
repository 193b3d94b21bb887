"""The prompts that every engine is measured on: token ids, drawn from a fixed seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    prompt: list[int]
    new_tokens: int


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(0, 120000) for _ in range(count)]


def _fixed(count: int, prompt: int, new: int) -> Callable[[random.Random], list[Request]]:
    return lambda rng: [Request(_ids(rng, prompt), new) for _ in range(count)]


def _mixed(rng: random.Random) -> list[Request]:
    """256 requests, in and out uniform in 100..1024."""
    requests = []
    for _ in range(256):
        prompt = _ids(rng, rng.randint(100, 1024))
        requests.append(Request(prompt, rng.randint(100, 1024)))
    return requests


def _prefix(rng: random.Random) -> list[Request]:
    """128 requests share 2,048 of their 2,176 tokens."""
    shared = _ids(rng, 2048)
    return [Request(shared + _ids(rng, 128), 64) for _ in range(128)]


_MAKERS: dict[str, Callable[[random.Random], list[Request]]] = {
    "decode1": _fixed(1, 128, 512),
    "decode8": _fixed(8, 128, 512),
    "decode64": _fixed(64, 512, 256),
    "decode256": _fixed(256, 512, 256),
    "mixed256": _mixed,
    "prefill": _fixed(32, 4096, 1),
    "prefix": _prefix,
    "rush64": _fixed(64, 2048, 256),
    "many512": _fixed(512, 128, 256),
    "long8": _fixed(8, 32_768, 256),
    "long1": _fixed(1, 120_000, 128),
}
NAMES = tuple(_MAKERS)
LONG = ("long8", "long1")
USUAL = tuple(name for name in NAMES if name not in LONG)


def workload(name: str) -> list[Request]:
    return _MAKERS[name](random.Random(0))
