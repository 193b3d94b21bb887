"""What pods tell of their ranks comes onto the leader's board, and nothing else does."""

import asyncio
from collections.abc import Iterator

import pytest

from octavo.proto.v1 import group_pb2
from octavo.worker.ipc.process_context import create_shared
from octavo.worker.ipc.shared_board import RANK, Board, ProcessSlot
from octavo.worker.leader.step_broadcast import StepBroadcast
from octavo.worker.topology import Layout


@pytest.fixture
def board() -> Iterator[tuple[Board, StepBroadcast]]:
    """Of a group of two pods with two ranks each."""
    shared = create_shared(2)
    board = Board(shared.board)
    yield board, StepBroadcast(shared, board, Layout(2, 2, 2), asyncio.Event())
    board.close()
    shared.close()


def beat(*steps: int) -> group_pb2.Heartbeat:
    ranks = [group_pb2.RankHeartbeat(phase=group_pb2.SERVING, finished_step=step) for step in steps]
    return group_pb2.Heartbeat(ranks=ranks)


def finished(board: Board) -> list[int]:
    return [board.read(RANK + rank, ProcessSlot.FINISHED) for rank in range(4)]


def test_another_pods_ranks_are_shown_and_the_leaders_own_show_themselves(board: tuple[Board, StepBroadcast]) -> None:
    shown, relay = board
    relay.heartbeat(1, beat(7, 8))
    relay.heartbeat(0, beat(5, 6))
    assert finished(shown) == [0, 0, 7, 8]


@pytest.mark.parametrize("pod", [0, 1])
@pytest.mark.parametrize("steps", [(), (1,), (1, 2, 3)])
def test_a_heartbeat_of_more_or_fewer_ranks_is_refused_whole(
    board: tuple[Board, StepBroadcast], pod: int, steps: tuple[int, ...]
) -> None:
    shown, relay = board
    with pytest.raises(ValueError, match=f"pod {pod} tells of {len(steps)} ranks, and has 2"):
        relay.heartbeat(pod, beat(*steps))
    assert finished(shown) == [0, 0, 0, 0]
