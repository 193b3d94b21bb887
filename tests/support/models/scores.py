"""Log-probabilities of two runs, packed as in engine.proto."""

import struct

import pytest

TOLERANCE = 1e-4


def same_scores(one: bytes, other: bytes, top: int | None) -> None:
    """The same ids and ranks, and values but for the order of sums."""
    if top is None:
        assert one == other == b""
        return
    layout = f"<{2 + top}I{1 + top}f"
    rows, others = list(struct.iter_unpack(layout, one)), list(struct.iter_unpack(layout, other))
    assert rows and [row[: 2 + top] for row in rows] == [row[: 2 + top] for row in others]
    for row, another in zip(rows, others, strict=True):
        assert row[2 + top :] == pytest.approx(another[2 + top :], abs=TOLERANCE)
