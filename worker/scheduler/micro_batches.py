"""The micro-batches of a pipeline: one a stage, so that each stage has one to work on while the others have theirs.

    step        1    2    3    4    5        3 stages: step 4 reads tokens that step 1 has sampled,
   batch       A    B    C    A    B        so it can enter the first stage as soon as step 3 has left it

The batches take turns and are kept even, within one request: a request moves when others have left its neighbours. With
fewer requests than stages each is stepped as soon as its turn comes again; so is a lonely one, in every step.
"""

from collections.abc import Iterator

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Request
from octavo.worker.scheduler.decode_batch import DecodeBatch


class MicroBatches:
    def __init__(self, limits: Limits) -> None:
        self._batches = [DecodeBatch(limits.block_size, limits.stages) for _ in range(limits.stages)]

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def __iter__(self) -> Iterator[DecodeBatch]:
        return iter(self._batches)

    @property
    def requests(self) -> list[Request]:
        return [request for batch in self._batches for request in (*batch.requests, *batch.joining)]

    def join(self, request: Request) -> None:
        """To one of the smallest batches, of them to the one where it gets its row first."""
        newest = max(batch.number for batch in self._batches)
        batch = min(self._batches, key=lambda batch: (len(batch), batch.number < newest, batch.number))
        batch.join(request)

    def leave(self, request: Request) -> None:
        next(batch for batch in self._batches if request in batch.requests or request in batch.joining).leave(request)

    def rebalance(self) -> None:
        """The requests longest in a batch move: none moves again before all its neighbours have."""
        while True:
            largest, smallest = max(self._batches, key=len), min(self._batches, key=len)
            if len(largest) - len(smallest) < 2:
                return
            request = (largest.requests or largest.joining)[0]
            largest.leave(request)
            smallest.join(request)

    def next_batches(self, number: int) -> Iterator[DecodeBatch]:
        """The batches that step `number` could take, best first, each with the rows that it would have.

        At first batches whose rows wait for nothing, and ones without rows, whose turn is good for prefill; then the
        ones that wait, first the one that does so least.
        """
        order = sorted(self._batches, key=lambda batch: batch.number)
        for batch in order:
            batch.admit_joining(number)
            if not batch.requests or batch.ready() <= number:
                yield batch
        for batch in sorted(filter(len, order), key=DecodeBatch.ready):
            batch.admit_joining(batch.ready())
            yield batch
