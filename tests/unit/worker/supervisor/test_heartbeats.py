"""What a pod says of its ranks is sent, whenever they beat."""

import time
from collections.abc import Iterator

import pytest

from octavo.proto.v1 import group_pb2
from octavo.worker.config import Config
from octavo.worker.ipc import shared_board as boards
from octavo.worker.ipc.shared_board import Board, ProcessSlot
from octavo.worker.supervisor.heartbeats import Heartbeats

ADDRESS = "unix:/tmp/unused"
CONFIG = Config("m", "m", *[ADDRESS] * 5, tensor=2)


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board(boards.create())
    yield made
    made.close()


def test_a_rank_that_beats_while_it_is_looked_at_was_not_silent(board: Board) -> None:
    looked_ns = time.monotonic_ns()
    for rank in range(2):
        board.beat(boards.RANK + rank)
    assert [rank.silent_ms for rank in Heartbeats(board, CONFIG).heartbeat(looked_ns).ranks] == [0, 0]


def test_a_heartbeat_says_how_long_each_rank_was_silent_and_how_far_it_is(board: Board) -> None:
    board.beat(boards.RANK)
    board.write(boards.RANK, ProcessSlot.PHASE, group_pb2.SERVING)
    board.write(boards.RANK, ProcessSlot.FINISHED, 7)
    first, second = Heartbeats(board, CONFIG).heartbeat(time.monotonic_ns() + 2_000_000_000).ranks
    assert 2000 <= first.silent_ms < 60_000
    assert (first.phase, first.finished_step) == (group_pb2.SERVING, 7)
    assert (second.phase, second.silent_ms) == (group_pb2.PHASE_UNSPECIFIED, 0), "it has not beaten yet"
