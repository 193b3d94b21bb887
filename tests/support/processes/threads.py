"""Ranks of one stage as threads of the test, and what they do together."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from octavo.proto.v1 import group_pb2
from octavo.worker.errors import PeerLost

Result = TypeVar("Result")


class Together:
    """Where the threads of a stage meet. given: at this meeting and at the one before; no thread comes to the next
    before all have read what was given at the last but one, so that they meet once for each."""

    def __init__(self, size: int, late: bool = False) -> None:
        """late: whether what adds up several rows does so while they compute with others."""
        self.late = late
        self.size = size
        self.barrier = threading.Barrier(size)
        self.given = tuple([torch.empty(0)] * size for _ in range(2))


class ThreadCollective:
    transport = group_pb2.TRANSPORT_UNSPECIFIED

    def __init__(self, together: Together, rank: int) -> None:
        self.rank, self.size = rank, together.size
        self._together = together
        self._meetings = 0

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_contiguous()
        return x.copy_(self.gather(x).sum(dim=0))

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self.sum_(x)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        given = self._together.given[self._meetings % 2]
        self._meetings += 1
        given[self.rank] = x.clone()  # x may change while others still read
        try:
            self._together.barrier.wait()
        except threading.BrokenBarrierError:
            raise PeerLost("a thread of this stage is gone") from None
        return torch.stack(given)

    def swap(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        for rank, x in enumerate(sent):
            gathered = self.gather(x)
            if rank == self.rank:
                for into, one in zip(came, gathered, strict=True):
                    into.copy_(one)


class LateCollective(ThreadCollective):
    """Its sums of several rows are there only once they are waited for; until then no thread finds anything."""

    def overlaps(self, x: torch.Tensor) -> bool:
        return x.shape[0] > 1

    def begin_sum(self, x: torch.Tensor) -> Callable[[], None]:
        total = self.sum_(x.clone())
        x.fill_(torch.nan)

        def end() -> None:
            assert x.isnan().all(), "written to while it was added up"
            x.copy_(total)

        return end


def on_each(size: int, work: Callable[[ThreadCollective], Result]) -> Sequence[Result]:
    """What `work` gives on each of `size` ranks."""
    together = Together(size)

    def run(rank: int) -> Result:
        try:
            return work(ThreadCollective(together, rank))
        except BaseException:
            together.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
