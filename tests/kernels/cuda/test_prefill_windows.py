"""The keys that prefill attention goes through give each query all that its window shows, and nothing else."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.prefill_division import KEYS, ROWS, WARPGROUPS, attend, passes, tiles

chunks = st.tuples(st.integers(0, 300), st.integers(1, 90))
windows = st.one_of(st.just(0), st.integers(1, 20), st.integers(1, 500))


@settings(max_examples=30)
@given(chunks, windows, st.integers(1, 8))
def test_every_row_is_the_softmax_of_the_keys_that_it_sees(chunk: tuple[int, int], window: int, group: int) -> None:
    start, count = chunk
    source = np.random.default_rng(start + count)
    scores, values = source.normal(size=start + count) * 12, source.normal(size=(start + count, 3))
    for tile in tiles(start, count, group, window):
        for row in range(WARPGROUPS * ROWS):
            query = row // group
            if query >= tile.queries or query >= WARPGROUPS * ROWS // group:
                continue
            position = tile.position + query
            made = passes(tile, row // ROWS, group, window)
            found = attend(scores, values, position, tile, made, window)
            seen = slice(max(0, position - window + 1) if window else 0, position + 1)
            weights = 2.0 ** (scores[seen] - scores[seen].max())
            np.testing.assert_allclose(found, weights @ values[seen] / weights.sum(), rtol=1e-9)


@given(chunks, st.integers(1, 500), st.integers(1, 8))
def test_no_more_keys_are_read_than_a_tile_and_its_window_span(chunk: tuple[int, int], window: int, group: int) -> None:
    for tile in tiles(*chunk, group, window):
        assert tile.begin % KEYS == 0
        assert tile.end - tile.begin < window + tile.queries + KEYS


@given(chunks, windows, st.integers(1, 8))
def test_keys_in_the_middle_are_not_masked(chunk: tuple[int, int], window: int, group: int) -> None:
    for tile in tiles(*chunk, group, window):
        for warpgroup in range(WARPGROUPS):
            made = passes(tile, warpgroup, group, window)
            first_row = warpgroup * ROWS
            last = tile.position + min(tile.queries, (first_row + ROWS - 1) // group + 1) - 1
            for one in made:
                whole = one.first + KEYS <= tile.position + first_row // group + 1
                whole = whole and (not window or one.first > last - window)
                assert one.masked != whole
