"""The micro-batches of a pipeline: one a stage, so that each stage has one to work on while the others have theirs.

    step        1    2    3    4    5        3 stages: step 4 reads tokens that step 1 has sampled,
    lane        A    B    C    A    B        so it can enter the first stage as soon as step 3 has left it

The lanes take turns and are kept even, within one request: a request moves when others have left its neighbours. With
fewer requests than stages each is stepped as soon as its turn comes again; so is a lonely one, in every step.
"""

from collections.abc import Iterator

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Request
from octavo.worker.scheduler.decode_batch import Lane


class Lanes:
    def __init__(self, limits: Limits) -> None:
        self._lanes = [Lane(limits.block_size, limits.stages) for _ in range(limits.stages)]

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    @property
    def requests(self) -> list[Request]:
        return [request for lane in self._lanes for request in (*lane.requests, *lane.joining)]

    def join(self, request: Request) -> None:
        """To one of the smallest lanes, of those to the one where it gets its row first."""
        newest = max(lane.number for lane in self._lanes)
        lane = min(self._lanes, key=lambda lane: (len(lane), lane.number < newest, lane.number))
        lane.join(request)

    def leave(self, request: Request) -> None:
        next(lane for lane in self._lanes if request in lane.requests or request in lane.joining).leave(request)

    def even_out(self) -> None:
        """Those longest in a lane move: nobody moves again before all its neighbours have."""
        while True:
            largest, smallest = max(self._lanes, key=len), min(self._lanes, key=len)
            if len(largest) - len(smallest) < 2:
                return
            request = (largest.requests or largest.joining)[0]
            largest.leave(request)
            smallest.join(request)

    def turns(self, number: int) -> Iterator[Lane]:
        """The lanes that step `number` could take, best first, each with those rows that it would have.

        At first those whose rows wait for nothing, and those without rows, whose turn is good for prefill; then those
        that wait, first the one that does so least.
        """
        order = sorted(self._lanes, key=lambda lane: lane.number)
        for lane in order:
            lane.take_in(number)
            if not lane.requests or lane.ready() <= number:
                yield lane
        for lane in sorted(filter(len, order), key=Lane.ready):
            lane.take_in(lane.ready())
            yield lane
