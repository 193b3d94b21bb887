"""Requests with known tokens that no step was given yet: those that wait for a slot and blocks, and those that have
them; and what of both a step takes, beside the rows that decode in it."""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octavo.worker.chunk import Chunk
from octavo.worker.clean import CleanCache
from octavo.worker.lane import Lane
from octavo.worker.lanes import Lanes
from octavo.worker.limits import Limits
from octavo.worker.pace import Pace, Work
from octavo.worker.request import Phase, Request
from octavo.worker.slots import Slots

_PASSED = 16  # of those who wait for a block that another computes, so many are passed over in a step
_ADMITTED_WORDS = 1 << 21  # of all that one step admits: it carries their ids and wishes, and its ring has an end


@dataclass(frozen=True, slots=True)
class Portion:
    """chunks: of one step; of `admitted` the first ones. work: all that the step has to do."""

    chunks: list[Chunk]
    admitted: list[Request]
    work: Work

    @property
    def tokens(self) -> int:
        return sum(chunk.count for chunk in self.chunks)


class Prefill:
    def __init__(self, limits: Limits, pace: Pace, cache: CleanCache, slots: Slots, lanes: Lanes) -> None:
        self.waiting: list[Request] = []  # the next one stands last
        self.running: list[Request] = []  # in order of admission
        self._admissions = 0
        self._limits = limits
        self._pace = pace
        self._cache = cache
        self._slots = slots
        self._lanes = lanes

    def wait(self, request: Request) -> None:
        request.phase = Phase.WAITING
        insort(self.waiting, request, key=lambda waiting: (waiting.new.priority, -waiting.arrival))

    @property
    def queued_tokens(self) -> int:
        """Not issued, and not found in the prefix cache as far as one can tell."""
        return sum(request.uncached for request in (*self.waiting, *self.running))

    def portion(self, lane: Lane, admit: bool) -> Portion:
        """Chunks of those admitted before, then of the waiting, within the token budget and the time left to prefill
        in the next step of `lane`.

        A chunk of one token goes first, beside the decoding rows.
        """
        admissions = self._admissions
        rows = len(lane.requests)
        budget = self._limits.max_batch_tokens - rows
        decode = work = Work(rows, lane.context)
        chunks: list[Chunk] = []

        def has_room(one: Request) -> bool:
            return budget > 0 and self._room(decode, work, one) > 0

        for request in self._candidates(admit, has_room):
            start = request.issued
            chunk = Chunk(request, start, min(request.known - start, budget, self._room(decode, work, request)))
            chunks.append(chunk)
            work = work.with_chunk(start, chunk.count)
            budget -= chunk.count
        chunks.sort(key=lambda chunk: chunk.count > 1)
        admitted = [chunk.request for chunk in chunks if chunk.request.admitted > admissions]
        return Portion(chunks, admitted, work)

    def _room(self, decode: Work, work: Work, request: Request) -> int:
        """Tokens of `request` that the time of this step still allows. Those of other lanes wait for it, too."""
        decoding = len(self._lanes)
        if not decoding:
            return self._limits.max_batch_tokens
        waits = request.phase is Phase.WAITING
        start = request.known - request.uncached if waits else request.issued
        gentle = self._pace.is_long(start, request.known - start) if waits else request.long
        crowd = (len(self.waiting) + len(self.running)) / decoding
        return self._pace.room(decode, work, start, gentle, crowd)

    def _candidates(self, admit: bool, has_room: Callable[[Request], bool]) -> Iterator[Request]:
        yield from filter(has_room, list(self.running))
        admitted_words = passed = 0
        while admit and passed < len(self.waiting) and self._slots.free and has_room(self.waiting[-1 - passed]):
            request = self.waiting[-1 - passed]
            if passed and request.new.priority < self.waiting[-1].new.priority:
                return
            hits = self._cache.hits(request)
            if passed < _PASSED and self._cache.is_coming(request, hits, self.running):
                passed += 1  # it waits a little, and computes less
                continue
            before, admitted_words = admitted_words, admitted_words + _words(request)
            if before and admitted_words > _ADMITTED_WORDS:
                return
            watermark = self._limits.watermark_blocks if self._lanes or self.running else 0
            if not self._cache.fits(request, hits, watermark):
                return
            self.waiting.pop(-1 - passed)
            self._take_in(request, hits)
            yield request

    def _take_in(self, request: Request, hits: list[int]) -> None:
        self._cache.admit(request, hits)
        request.slot = self._slots.free.pop()
        if not request.admitted:
            request.cached = request.issued
        request.long = self._pace.is_long(request.issued, request.known - request.issued)
        self._admissions += 1
        request.admitted = self._admissions
        request.phase = Phase.PREFILLING
        self.running.append(request)


def _words(request: Request) -> int:
    """Of four bytes, that admitting it takes in a step."""
    adjust = request.new.sampling.adjust
    return request.known if adjust is None else request.known + adjust.size
