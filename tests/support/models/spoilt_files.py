"""Files of a model with something changed in them, each drawn from a seed: a value, a name, some bytes, the end."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from support.router.bad_bodies import mutated

DEEP = "[" * 5_000 + "]" * 5_000
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    513,
    1.5,
    -0.5,
    1e308,
    2**31,
    2**32 - 1,
    2**32,
    2**63,
    2**64,
    -(2**63),
    10**12,
    10**400,
)
TEXTS = (
    "",
    "x",
    "\ud800",
    "é\U0001f336",
    "0",
    "true",
    "..",
    "../x",
    "/etc/passwd",
    "model.safetensors",
    "F32",
    "é" * 200,
)
TREES: tuple[Any, ...] = (
    *([], [[]], [None], [0], ["x"], [1, 2] * 50, list(range(2_000)), {}, {"": {}}, {"type": "BPE"}),
    *({"type": "Sequence"}, {"content": "<s>"}, {"id": 2**31, "content": "x"}),
    *({"type": "Split", "pattern": {"Regex": "(("}}, [{"name": [], "template": "x"}]),
)
VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *TEXTS, "a" * 10_000, *TREES)


def spoilt(draw: Random, content: bytes) -> bytes:
    """Of a JSON file."""
    if draw.random() < 0.25:
        return mutated(draw, content)
    changed = json.loads(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        changed = _changed(draw, changed)
    text = json.dumps(changed)
    if draw.random() < 0.02:
        text = text.replace(":", f': {DEEP}, "deep":', 1)
    return text.encode()


def spoilt_weights(draw: Random, content: bytes) -> bytes:
    """Of a safetensors file: its header's JSON, its length, or any byte."""
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    match draw.randint(0, 9):
        case 0:
            wrong = draw.choice((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1, draw.randint(0, len(content))))
            return wrong.to_bytes(8, "little") + content[8:]
        case 1:
            return content[: draw.randint(0, len(content))]
        case 2:
            return content + draw.randbytes(draw.randint(1, 64))
        case 3:
            return mutated(draw, content[: 8 + length]) + data
        case _:
            header = spoilt(draw, header)
            return len(header).to_bytes(8, "little") + header + data


def _changed(draw: Random, tree: Any) -> Any:
    """One node of it, any one; in a large list or object the early ones as often as all others."""
    holders: list[tuple[Any, Any]] = []
    _collect(tree, holders)
    if not holders or draw.random() < 0.02:
        return _value(draw)
    holder, key = draw.choice(holders[:60] if draw.random() < 0.5 else holders)
    change = draw.choice(CHANGES)
    change(draw, holder, key)
    return tree


def _value(draw: Random) -> Any:
    return deepcopy(draw.choice(VALUES))


def _collect(tree: Any, holders: list[tuple[Any, Any]]) -> None:
    """Each place of the tree as what holds it, and the key or index there."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, inner in inside:
        holders.append((tree, key))
        _collect(inner, holders)


def _replace(draw: Random, holder: Any, key: Any) -> None:
    holder[key] = _value(draw)


def _nudge(draw: Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int):
        _replace(draw, holder, key)
    else:
        holder[key] = value + draw.choice((-1, 1, 2, -value, value, 10**6, 10**11))


def _remove(draw: Random, holder: Any, key: Any) -> None:
    del holder[key]


def _wrap(draw: Random, holder: Any, key: Any) -> None:
    holder[key] = draw.choice(([holder[key]], {"x": holder[key]}, str(holder[key])[:200]))


def _rename(draw: Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(holder, dict):
        del holder[key]
        holder[draw.choice((key + "x", key[:-1], "", "\ud800", "__metadata__"))] = value
    else:
        holder.append(value)


CHANGES: tuple[Callable[[Random, Any, Any], None], ...] = (_replace, _replace, _nudge, _remove, _wrap, _rename)
