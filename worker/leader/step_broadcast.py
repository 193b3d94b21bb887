"""The leader's link to the group's other pods: steps out, their ranks' results in, their health onto the board."""

import asyncio

from octavo.proto.v1 import group_pb2
from octavo.worker.ipc import ring
from octavo.worker.ipc import shared_board as boards
from octavo.worker.ipc.process_context import Shared
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender
from octavo.worker.ipc.shared_board import Board, ProcessSlot
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.topology import Layout


class StepBroadcast:
    """Between the core's rings and the pods' Join streams. Everything runs on serve's event loop and never waits."""

    def __init__(self, shared: Shared, board: Board, layout: Layout, draining: asyncio.Event) -> None:
        self._steps, self._returned = RingReader(shared.relay), RingSender(shared.returned)
        self._board = board
        self._layout = layout
        self._draining = draining

    def start(self, group: GroupServicer) -> None:
        """Begin to give out the core's steps."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._steps.fds.data, self._give, group)
        loop.add_reader(self._returned.fds.space, self._flush)

    def _give(self, group: GroupServicer) -> None:
        ring.clear(self._steps.fds.data)
        try:
            while (record := self._steps.pop()) is not None:
                group.step(record)
        except ring.RingBroken as error:
            group.end(group_pb2.Failure(rank=-1, reason="ServeFailed", message=str(error)))

    def _flush(self) -> None:
        ring.clear(self._returned.fds.space)
        self._returned.flush()

    # What pods say

    def record(self, record: bytes) -> None:
        self._returned.send(record)
        self._returned.flush()

    def heartbeat(self, pod: int, beat: group_pb2.Heartbeat) -> None:
        """The ranks of the leader's own pod write their slots themselves. Raises ValueError unless it tells of as many
        ranks as the pod has."""
        ranks = self._layout.ranks_of(pod)
        if len(beat.ranks) != len(ranks):
            raise ValueError(f"pod {pod} tells of {len(beat.ranks)} ranks, and has {len(ranks)}")
        if pod == 0:
            return
        for rank, said in zip(ranks, beat.ranks, strict=True):
            slot = boards.RANK + rank
            self._board.write(slot, ProcessSlot.PHASE, said.phase)
            self._board.write(slot, ProcessSlot.PROGRESS, said.progress_percent)
            self._board.write(slot, ProcessSlot.FINISHED, said.finished_step)
            self._board.write(slot, ProcessSlot.COLLECTIVE, said.collective)
            self._board.write(slot, ProcessSlot.ACTIVATIONS, said.activations)
            self._board.beat(slot, said.silent_ms * 1_000_000)

    def drain(self) -> None:
        self._draining.set()
