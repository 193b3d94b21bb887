"""How much the ranks of a pod have yet to copy to their host's memory: they share its limit, and a first sleep has all
of them copy at once. On the board, a word for each rank.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from octavo.worker.ipc.shared_board import RANK, Board, ProcessSlot


class PodCopies:
    """ranks: of the pod. rank: this one."""

    def __init__(self, board: int, ranks: range, rank: int) -> None:
        self._board, self._ranks, self._rank = Board(board), ranks, rank
        self._file = os.open(f"/proc/self/fd/{board}", os.O_RDWR)  # opened once more: a lock of its own

    def write(self, count: int) -> None:
        """Bytes that this rank has yet to copy."""
        self._board.write(RANK + self._rank, ProcessSlot.TO_COPY, count)

    def total(self) -> int:
        """Bytes that all of them have. A copy that is being made counts as a whole."""
        return sum(self._board.read(RANK + rank, ProcessSlot.TO_COPY) for rank in self._ranks)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other rank of the pod is in here. It ends with the process, however that ends."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
