"""The division of decode attention covers every block of every row once, evenly, and gives partial results room."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.decode_division import BLOCK, CLUSTER, Costs, Piece, divide, groups

HEADS, GROUP = 2, 4


def tables_of(lengths: list[int], families: list[int], common: int) -> list[list[int]]:
    """Rows of one family have the same first `common` blocks; family 0 is of rows that share nothing."""
    width = max(-(-length // BLOCK) for length in lengths)
    return [
        [1000 * family + i if family and i < common else 10_000 * (row + 1) + i for i in range(width)]
        for row, family in enumerate(families)
    ]


def covered(pieces: list[Piece]) -> Counter[tuple[int, int, int]]:
    return Counter(
        (row, piece.head, block) for piece in pieces for row in piece.rows for block in range(piece.begin, piece.end)
    )


steps = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 2)), min_size=1, max_size=40)


windows = st.one_of(st.just(0), st.integers(1, 3200))


@given(steps, st.integers(1, 60), st.integers(1, 300), st.booleans(), windows)
def test_every_block_that_a_row_sees_is_attended_to_once(
    rows: list[tuple[int, int]], common: int, ctas: int, clusters: bool, window: int
) -> None:
    lengths, families = [length for length, _ in rows], [family for _, family in rows]
    costs = Costs(ctas, clusters=clusters)
    pieces = divide(lengths, tables_of(lengths, families, common), HEADS, GROUP, costs, window=window)
    seen = [range(max(0, n - (window or n)) // BLOCK, -(-n // BLOCK)) for n in lengths]
    wanted = {(row, head, block) for row, blocks in enumerate(seen) for head in range(HEADS) for block in blocks}
    assert covered(pieces) == Counter(wanted)
    assert all(piece.begin < piece.end for piece in pieces)
    assert all(piece.cta < ctas for piece in pieces)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20), st.integers(1, 16))
def test_pieces_that_meet_in_a_cluster_are_in_one(lengths: list[int], least: int) -> None:
    costs = Costs(264, least=least, clusters=True)
    together: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in divide(lengths, tables_of(lengths, [0] * len(lengths), 0), HEADS, GROUP, costs):
        if piece.cluster:
            together[piece.rows[0], piece.head].append(piece)
    for pieces in together.values():
        assert len({piece.cta // CLUSTER for piece in pieces}) == 1
        assert [piece.part for piece in pieces] == list(range(len(pieces)))
        assert [piece.cta - pieces[0].cta for piece in pieces] == list(range(len(pieces)))


@given(steps, st.integers(1, 60), st.integers(1, 300), windows)
def test_pieces_of_a_cta_follow_each_other_and_parts_do_not_meet(
    rows: list[tuple[int, int]], common: int, ctas: int, window: int
) -> None:
    lengths, families = [length for length, _ in rows], [family for _, family in rows]
    pieces = divide(lengths, tables_of(lengths, families, common), HEADS, GROUP, Costs(ctas), window=window)
    order = [piece.cta for piece in pieces]
    assert order == sorted(order)
    assert set(order) == set(range(order[-1] + 1)) and order[-1] < ctas
    for kind in (False, True):
        parts = [piece.part for piece in pieces if piece.shared is kind and piece.part is not None]
        assert len(parts) == len(set(parts))
        assert all(part < len(lengths) * HEADS + ctas for part in parts)
    by_row: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in pieces:
        for row in piece.rows:
            by_row[row, piece.head].append(piece)
    for mine in by_row.values():
        assert (len(mine) == 1) == (mine[0].part is None)


@pytest.mark.parametrize(("rows", "length", "busy"), [(1, 500, 2), (1, 4096, 16), (8, 640, 192), (256, 600, 260)])
def test_the_work_is_spread_evenly(rows: int, length: int, busy: int) -> None:
    lengths = [length] * rows
    pieces = divide(lengths, tables_of(lengths, [0] * rows, 0), 8, GROUP, Costs(264), sharing=False)
    load: Counter[int] = Counter()
    for piece in pieces:
        load[piece.cta] += piece.end - piece.begin + 1
    assert len(load) >= busy
    assert max(load.values()) <= max(16, 1.13 * sum(load.values()) / 264 + 2)


def test_a_row_that_shares_little_does_not_cut_the_others_short() -> None:
    lengths = [3000] * 6
    tables = tables_of(lengths, [1] * 6, 140)
    tables[5][10:] = range(50_000, 50_000 + len(tables[5]) - 10)
    assert groups(lengths, tables) == {0: ([0, 1, 2, 3, 4], 140)}


def test_rows_that_a_window_shows_the_end_of_share_nothing() -> None:
    lengths = [200] * 4 + [201]
    tables = tables_of(lengths, [1] * 5, 12)
    assert groups(lengths, tables, window=201) == {0: ([0, 1, 2, 3, 4], 12)}
    assert groups(lengths, tables, window=200) == {0: ([0, 1, 2, 3], 12)}
    assert groups(lengths, tables, window=199) == {}


def test_the_block_of_the_new_token_is_never_shared() -> None:
    assert groups([160] * 4, tables_of([160] * 4, [1] * 4, 10)) == {0: ([0, 1, 2, 3], 8)}
    assert groups([128] * 4, tables_of([128] * 4, [1] * 4, 8)) == {}
