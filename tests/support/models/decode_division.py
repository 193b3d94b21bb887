"""How csrc/attention/decode_plan.cu divides decode attention, in plain Python: the oracle of its tests."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

TILE_QUERIES, QUAD, BLOCK = 64, 4, 16
FEWEST_ROWS, FEWEST_BLOCKS = 4, 8
CLUSTER, CLUSTER_GAIN = 8, 16
DEPTHS = (128, 32, FEWEST_BLOCKS)


@dataclass(frozen=True, slots=True)
class Costs:
    ctas: int
    block: int = 8
    quad: int = 32
    unit: int = 8
    least: int = 8
    clusters: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks begin..end of `rows` at one kv head, done by one CTA; `part`: None where that is all of the row."""

    cta: int
    rows: tuple[int, ...]
    head: int
    begin: int
    end: int
    shared: bool
    part: int | None
    cluster: bool = False


@dataclass(frozen=True, slots=True)
class _Unit:
    """joined: its rows' first blocks are another unit's, a tile's."""

    rows: tuple[int, ...]
    head: int
    begin: int
    blocks: int
    shared: bool
    joined: bool


def _agreeing(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    return next((i for i in range(limit) if a[i] != b[i]), limit)


def groups(
    lengths: Sequence[int], tables: Sequence[Sequence[int]], window: int = 0
) -> dict[int, tuple[list[int], int]]:
    """Leader -> its rows, and how many blocks they share. tables: one a row. window: tokens that a row sees, 0: all."""
    found: dict[int, tuple[list[int], int]] = {}
    taken: set[int] = set()
    full = [0 if window and length > window else max(0, (length - 1) // BLOCK) for length in lengths]
    if len(lengths) < FEWEST_ROWS:
        return found
    for depth in DEPTHS:
        alike = defaultdict(list)
        for row, table in enumerate(tables):
            if row not in taken and full[row] >= depth and len(table) >= depth:
                alike[table[depth - 1]].append(row)
        for rows in alike.values():
            if len(rows) < FEWEST_ROWS:
                continue
            leader = rows[0]
            limits = [min(full[row], full[leader], len(tables[row])) for row in rows]
            common = min(_agreeing(tables[row], tables[leader], n) for row, n in zip(rows, limits, strict=True))
            common -= common % QUAD
            if common >= FEWEST_BLOCKS:
                found[leader] = rows, common
                taken.update(rows)
    return dict(sorted(found.items()))


def divide(
    lengths: Sequence[int],
    tables: Sequence[Sequence[int]],
    heads: int,
    group: int,
    costs: Costs,
    sharing: bool = True,
    window: int = 0,
) -> list[Piece]:
    shared = groups(lengths, tables, window) if sharing else {}
    begins = [max(0, length - window) // BLOCK if window else 0 for length in lengths]
    joined = {row for rows, _ in shared.values() for row in rows}
    tiles: list[tuple[tuple[int, ...], int]] = []
    for rows, common in shared.values():
        for row in rows:
            begins[row] = common
        size = TILE_QUERIES // group
        tiles += [(tuple(rows[i : i + size]), common) for i in range(0, len(rows), size)]
    own = [max(1, -(-length // BLOCK)) - begin for length, begin in zip(lengths, begins, strict=True)]
    units = [_Unit(rows, head, 0, common, True, False) for rows, common in tiles for head in range(heads)]
    units += [
        _Unit((row,), head, begins[row], own[row], False, row in joined)
        for row in range(len(own))
        for head in range(heads)
    ]
    tile_units = len(tiles) * heads

    def length(unit: _Unit) -> int:
        return unit.blocks // QUAD * costs.quad if unit.shared else unit.blocks * costs.block

    even = -(-(sum(map(length, units)) + len(units) * costs.unit) // costs.ctas)
    most = max(costs.least, (even + even // 8 - costs.unit) // costs.block)
    each_unit = _each_unit(own, len(units), costs, even) if costs.clusters and not tiles else 0
    if each_unit:
        return list(_in_clusters(units, each_unit, costs.least))
    pieces = [-(-blocks // most) for blocks in own]
    if not tiles and sum(pieces) * heads <= costs.ctas:
        return list(_apart(units, pieces, heads))
    return list(_on_a_line(units, tile_units, max(even, costs.least * costs.block, costs.quad + costs.unit), costs))


def _each_unit(own: Sequence[int], units: int, costs: Costs, even: int) -> int:
    """CTAs for each unit, 0: not in clusters."""
    each = CLUSTER
    while units * each > costs.ctas:
        each //= 2
    return each if each and own and -(-max(own) // each) <= even // costs.block + CLUSTER_GAIN else 0


def _in_clusters(units: Sequence[_Unit], each_unit: int, least: int) -> Iterator[Piece]:
    for index, unit in enumerate(units):
        count = min(each_unit, -(-unit.blocks // least))
        bounds = [unit.begin + unit.blocks * i // count for i in range(count + 1)]
        for i, (begin, end) in enumerate(pairwise(bounds)):
            part = i if count > 1 else None
            yield Piece(index * each_unit + i, unit.rows, unit.head, begin, end, False, part, count > 1)


def _apart(units: Sequence[_Unit], pieces: Sequence[int], heads: int) -> Iterator[Piece]:
    cta = 0
    for index, unit in enumerate(units):
        count = pieces[unit.rows[0]]
        bounds = [unit.begin + unit.blocks * i // count for i in range(count + 1)]
        for begin, end in pairwise(bounds):
            yield Piece(cta, unit.rows, unit.head, begin, end, False, index + cta if count > 1 else None)
            cta += 1


def _on_a_line(units: Sequence[_Unit], tile_units: int, slice_: int, costs: Costs) -> Iterator[Piece]:
    at = 0
    for number, unit in enumerate(units):
        at += costs.unit
        step, each = (QUAD, costs.quad) if unit.shared else (1, costs.block)
        owners: dict[int, list[int]] = defaultdict(list)
        for block in range(unit.blocks // step):
            owners[(at + block * each) // slice_].append(block)
        whole = not unit.shared and not unit.joined and len(owners) == 1
        index = number if unit.shared else number - tile_units
        for cta, blocks in owners.items():
            begin, end = unit.begin + blocks[0] * step, unit.begin + (blocks[-1] + 1) * step
            yield Piece(cta, unit.rows, unit.head, begin, end, unit.shared, None if whole else index + cta)
        at += unit.blocks // step * each
