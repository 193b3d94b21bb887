"""Oracle of csrc/attention/prefill_tensor.cuh in plain Python and numpy: the order in which a tile visits its keys.

Sizes are a fourth of the kernel's, so that small numbers meet every edge; letters and names are its own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEYS, ROWS, WARPGROUPS = 32, 16, 2  # kKeys; rows of a warpgroup
SLACK = 8.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tile:
    """Of one row of a step. position: of the first query."""

    position: int
    queries: int
    begin: int
    end: int


def tiles(start: int, count: int, group: int, window: int) -> Iterator[Tile]:
    """As prefill_plan cuts a row, where no keys are divided."""
    fill = WARPGROUPS * ROWS // group
    for query in range(0, count, fill):
        position, queries = start + query, min(fill, count - query)
        begin = max(0, position - window + 1) // KEYS * KEYS if window else 0
        yield Tile(position, queries, begin, position + queries)


@dataclass(frozen=True, slots=True)
class Pass:
    """One go at KEYS keys from `first` on, by rows of a warpgroup."""

    first: int
    masked: bool


def passes(tile: Tile, warpgroup: int, group: int, window: int) -> list[Pass]:
    first_row = warpgroup * ROWS
    queries = min(tile.queries, (first_row + ROWS - 1) // group + 1)
    all_, ahead = math.ceil((tile.end - tile.begin) / KEYS), tile.position - tile.begin
    if first_row // group >= tile.queries:
        return []
    needed = min(all_, (ahead + queries + KEYS - 1) // KEYS)
    clear = min((ahead + first_row // group + 1) // KEYS, needed)
    veiled = max(0, ahead + queries - window + KEYS - 1) // KEYS if window else 0
    done = [not (clear > 0 and veiled == 0)]
    while len(done) < min(veiled, needed):
        done.append(True)
    while len(done) < clear:
        done.append(False)
    while len(done) < needed:
        done.append(True)
    return [Pass(tile.begin + index * KEYS, masked) for index, masked in enumerate(done)]


def attend(scores: Floats, values: Floats, position: int, tile: Tile, made: list[Pass], window: int) -> Floats:
    """One row's result, as soften() and gather() come to it. scores: [keys]; values: [keys, d], both in powers of 2."""
    greatest, total, out = -math.inf, 0.0, np.zeros(values.shape[1])
    for one in made:
        s = np.full(KEYS, 1e9)  # what lies behind the last key may be anything
        s[: max(0, tile.end - one.first)] = scores[one.first : one.first + KEYS][: tile.end - one.first]
        if one.masked:
            keys = one.first + np.arange(KEYS)
            s[(position - keys) % 2**32 >= (window or 2**31 - 1)] = -math.inf
        most = float(s.max())
        moves = most > -math.inf and most - greatest > SLACK
        shrink = 2.0 ** (greatest - most) if moves else 1.0
        greatest = most if moves else greatest
        weights = 2.0 ** (s - (greatest if greatest > -math.inf else 0.0))
        v = np.zeros((KEYS, values.shape[1]))
        v[: max(0, tile.end - one.first)] = values[one.first : one.first + KEYS][: tile.end - one.first]
        total, out = total * shrink + float(weights.sum()), out * shrink + weights @ v
    return out / total
