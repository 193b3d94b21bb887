"""An incarnation's counters are the group's: what an earlier incarnation counted stays."""

from collections.abc import Callable

import pytest

from octavo.worker.ipc import shared_board as board
from octavo.worker.ipc.shared_board import Board, Gauge, ProcessSlot
from octavo.worker.membership.status import GroupState
from octavo.worker.supervisor.metrics import Totals, metrics_page


def value(page: bytes, name: str) -> float:
    return float(next(line.split()[1] for line in page.decode().splitlines() if line.startswith(name + " ")))


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (
            lambda page, n: page.write(board.RANK + 2, ProcessSlot.LATE, n),
            "octavo_worker_stale_incarnation_messages_total",
        ),
        (lambda page, n: page.set(Gauge.GENERATED_TOKENS_TOTAL, n), "octavo_worker_generated_tokens_total"),
    ],
    ids=["late", "generated"],
)
def test_a_counter_is_shown_and_does_not_fall_with_an_incarnation(
    count: Callable[[Board, int], None], name: str
) -> None:
    totals, page = Totals(), Board(board.create())
    show = metrics_page(totals, GroupState())
    totals.current = page.gauges
    count(page, 3)
    assert value(show().body, name) == 3
    totals.end_incarnation()
    assert value(show().body, name) == 3
    totals.current = page.gauges
    count(page, 1)
    assert value(show().body, name) == 4
