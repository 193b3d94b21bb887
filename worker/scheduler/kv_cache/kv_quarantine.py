"""The KV cache, cleaned of what failed requests computed: which blocks every rank zeroes, and when.

    request fails --> its blocks --------unused------> due: zeroed by the next step, which may hand them out again
                           |                            ^
                           +--in use--> quarantined ----+

A request masks KV positions it has not written, and a masked NaN is NaN. In use is a block that others found in the
prefix cache, or one that was given back while results were to come (all positions issued, preempted, cancelled) and
taken by another before the failure was known. Hence a request that fails may have read what another left. A failure
counts of one that shares no block and has each zeroed by the step that gets it: at its first one a request is
recomputed so.
"""

from collections.abc import Iterable

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Request
from octavo.worker.scheduler.kv_cache.cache import Cache


class QuarantiningCache(Cache):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._shared: dict[Request, int] = {}  # leading blocks that others wrote, by their reader
        self._given: dict[Request, list[int]] = {}  # written and given back, with results to come
        self._quarantined: set[int] = set()
        self._due: set[int] = set()
        self._isolated: set[Request] = set()

    def isolate(self, request: Request) -> None:
        """Once it is admitted again nothing that others computed can reach it."""
        self._isolated.add(request)

    def isolated(self, request: Request) -> bool:
        return request in self._isolated

    def due(self) -> tuple[int, ...]:
        """Blocks that the step which is issued now must zero."""
        due, self._due = self._due, set()
        return tuple(sorted(due))

    @property
    def owes_zeros(self) -> bool:
        return bool(self._due)

    def zero_later(self, blocks: Iterable[int]) -> None:
        """A step that was to zero these was not issued: the next one does."""
        self._due.update(blocks)

    def shares(self, request: Request) -> bool:
        return request not in self._isolated and super().shares(request)

    def admit(self, request: Request, hits: list[int]) -> None:
        super().admit(request, hits)
        self._shared[request] = len(hits)
        if request in self._isolated:
            self._due.update(request.blocks)

    def grow(self, request: Request) -> int:
        block = super().grow(request)
        if request in self._isolated:
            self._due.add(block)
        return block

    def index(self, request: Request) -> None:
        if not self._quarantined or self._quarantined.isdisjoint(request.blocks):
            super().index(request)

    def leave(self, request: Request, failed: bool = False) -> None:
        """Give back its blocks, the full ones into the prefix cache unless it failed."""
        if failed:
            self.poison(request)
        else:
            self.index(request)
        blocks = request.blocks
        self.give_back(request)
        self._given[request] = blocks[self._shared.pop(request) :]
        if self._quarantined:
            self._sort(self._quarantined.intersection(blocks))

    def settled(self, request: Request) -> None:
        """All results of a request that left are here."""
        self._given.pop(request, None)

    def ended(self, request: Request) -> None:
        """It will not be admitted again."""
        self._isolated.discard(request)

    def failed(self, request: Request, live: Iterable[Request]) -> None:
        """The logits of a request that left were not finite: no request shall find or inherit what it computed."""
        if request not in self._given:  # known already
            return
        self.poison(request)
        blocks = self._given.pop(request)
        for other in {*live, *self._given}:
            if not {*other.blocks, *self._given.get(other, ())}.isdisjoint(blocks):
                self.poison(other)
        self._sort(blocks)

    def _sort(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self.blocks.uses(block):
                self._quarantined.add(block)
            else:
                self._quarantined.discard(block)
                self._due.add(block)
