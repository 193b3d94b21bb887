"""A queue for each model that groups serve, under one bound: where one model's groups are full, the requests for
another go on. Pure: the clock is an argument."""

from collections.abc import Collection
from typing import Generic, TypeVar

from octavo.router.dispatch.rules.admission import Queue, QueueEntry, QueueFull, QueueLimits

T = TypeVar("T")


class ModelQueues(Generic[T]):
    """Queues by the model's digest, each made when it is asked for."""

    def __init__(self, bounds: QueueLimits) -> None:
        self.bounds = bounds
        self._queues: dict[str, Queue[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def nonempty(self) -> list[Queue[T]]:
        """The queues in which something waits."""
        return [queue for queue in self._queues.values() if len(queue)]

    @property
    def retry_after_s(self) -> float:
        """The longest of the queues' estimates."""
        return max((queue.retry_after_s for queue in self._queues.values()), default=1.0)

    def find(self, digest: str) -> Queue[T] | None:
        """The model's queue, if one was made."""
        return self._queues.get(digest)

    def of(self, digest: str) -> Queue[T]:
        if digest not in self._queues:
            self._queues[digest] = Queue(self.bounds)
        return self._queues[digest]

    def push(self, digest: str, entry: QueueEntry[T], readmitted: bool = False) -> Queue[T]:
        """Join the model's queue, which is returned. readmitted: it has waited in another one: it goes ahead of its
        tenant's, past the bound. Raises QueueFull when as many wait in all queues as may."""
        queue = self.of(digest)
        if len(self._queues) > 1 and not readmitted and (waiting := len(self)) >= self.bounds.max_requests:
            raise QueueFull(waiting, self.retry_after_s)
        queue.push(entry, readmitted)
        return queue

    def forget(self, kept: Collection[str]) -> None:
        """Drop the queues of other models in which nothing waits."""
        self._queues = {digest: queue for digest, queue in self._queues.items() if len(queue) or digest in kept}
