"""A life's counters are those of the group: what an earlier life counted stays."""

import pytest

from octavo.worker import board
from octavo.worker.board import Board, Gauge
from octavo.worker.metrics import Totals, metrics_page
from octavo.worker.status import GroupState


def value(page: bytes, name: str) -> float:
    return float(next(line.split()[1] for line in page.decode().splitlines() if line.startswith(name + " ")))


@pytest.mark.parametrize(
    ("gauge", "name"),
    [
        (Gauge.LATE_TOTAL, "octavo_worker_late_messages_total"),
        (Gauge.GENERATED_TOKENS_TOTAL, "octavo_worker_generated_tokens_total"),
    ],
)
def test_a_counter_is_shown_and_does_not_fall_with_a_life(gauge: Gauge, name: str) -> None:
    totals, page = Totals(), Board(board.create())
    show = metrics_page(totals, GroupState())
    totals.current = page.gauges
    page.set(gauge, 3)
    assert value(show().body, name) == 3
    totals.end_life()
    assert value(show().body, name) == 3
    totals.current = page.gauges
    page.set(gauge, 1)
    assert value(show().body, name) == 4
