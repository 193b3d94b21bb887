"""Requests with known tokens that no step was given yet: some wait for a slot and blocks, some have
them; and what of both a step takes, beside the rows that decode in it."""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Phase, Request
from octavo.worker.scheduler.decode_batch import DecodeBatch
from octavo.worker.scheduler.kv_cache.kv_quarantine import QuarantiningCache
from octavo.worker.scheduler.micro_batches import MicroBatches
from octavo.worker.scheduler.slots import Slots
from octavo.worker.scheduler.step_builder import Chunk
from octavo.worker.scheduler.step_length import StepLength, StreamAges
from octavo.worker.scheduler.step_time_model import StepTimeModel, Work

_PASSED = 16  # of the requests that wait for a block that another computes, at most so many are skipped in a step
_KEPT, _LOOKED_AT = 8, 8  # a long prompt leaves short ones an eighth of its tokens; so many that wait are looked at
_ADMITTED_WORDS = 1 << 21  # of all that one step admits: it carries their ids and changes, and its ring has an end

# Of a request's tokens from a start on, long or not: how many a step may take.
Room = Callable[[Request, int, bool], int]


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """chunks: of one step; of `admitted` the first ones. work: all that the step has to do."""

    chunks: list[Chunk]
    admitted: list[Request]
    work: Work

    @property
    def tokens(self) -> int:
        return sum(chunk.count for chunk in self.chunks)


class Prefill:
    def __init__(
        self,
        limits: Limits,
        step_length: StepLength,
        step_times: StepTimeModel,
        cache: QuarantiningCache,
        slots: Slots,
        micro_batches: MicroBatches,
        ages: StreamAges,
    ) -> None:
        self.waiting: list[Request] = []  # the next one stands last
        self.running: list[Request] = []  # in order of admission
        self._admissions = 0
        self._limits = limits
        self._step_length = step_length
        self._step_times = step_times
        self._cache = cache
        self._slots = slots
        self._batches = micro_batches
        self._ages = ages

    def wait(self, request: Request) -> None:
        request.phase = Phase.WAITING
        insort(self.waiting, request, key=lambda waiting: (waiting.new.priority, -waiting.arrival))

    @property
    def queued_tokens(self) -> int:
        """Not issued, and not found in the prefix cache as far as one can tell."""
        return sum(request.uncached for request in (*self.waiting, *self.running))

    def plan(self, batch: DecodeBatch, admit: bool) -> PrefillPlan:
        """Chunks of the requests admitted before, then of the waiting, within the token budget and the time left to
        prefill in the next step of `batch`.

        A chunk of one token goes first, beside the decoding rows.
        """
        admissions = self._admissions
        rows = len(batch.requests)
        budget = self._limits.max_batch_tokens - rows
        decode = work = Work(rows, batch.context, rows=rows)
        chunks: list[Chunk] = []
        longest_s = 0.0  # that a long prompt of this step may make it

        def room(one: Request, start: int, long: bool) -> int:
            free = min(budget, self._room(decode, work, one, start, long, longest_s))
            if long and free > _KEPT:
                free -= min(free // _KEPT, self._short_tokens)
            return min(one.known - start, free)

        for request in self._candidates(admit, room):
            start = request.issued
            count = room(request, start, request.long)
            chunks.append(Chunk(request, start, count))
            work = work.with_chunk(start, count)
            budget -= count
            if request.long:
                longest_s = max(longest_s, self._allowed_s(decode, request, long=True))
        chunks.sort(key=lambda chunk: chunk.count > 1)
        admitted = [chunk.request for chunk in chunks if chunk.request.admitted > admissions]
        return PrefillPlan(chunks, admitted, work)

    @property
    def _short_tokens(self) -> int:
        """Of short prompts that are not read yet: a long one must not keep them out of a step that it makes long."""
        running = sum(one.known - one.issued for one in self.running if not one.long)
        next_ones = self.waiting[: -1 - _LOOKED_AT : -1]
        return running + sum(one.uncached for one in next_ones if not self._is_long(one, one.known - one.uncached))

    def _allowed_s(self, decode: Work, request: Request, long: bool) -> float:
        waiting, established = len(self.waiting) + len(self.running), self._ages.established(request)
        return self._step_length.allowed_s(self._step_times.decoding_s(decode), long, waiting, established)

    def _room(self, decode: Work, work: Work, request: Request, start: int, long: bool, longest_s: float) -> int:
        """Tokens of a request from `start` on that the time of this step still allows, beside the requests of all
        batches: they all wait for it. A step without any prefill so far takes at least a block, unless decoding
        alone is to be measured. longest_s: as long as a long prompt has made it, it may be for the others."""
        if not len(self._batches):
            return self._limits.max_batch_tokens
        if self._step_times.decoding_is_stale and (long or any(one.long for one in self.running)):
            return 0  # for short ones too: with a chunk of theirs this step would not be what a long one waits for
        allowed_s = max(longest_s, self._allowed_s(decode, request, long))
        least = self._limits.block_size if work == decode else 0
        return max(least, self._step_times.room(work, start, allowed_s))

    def _candidates(self, admit: bool, room: Room) -> Iterator[Request]:
        """Requests that get at least one token of the step, each with the state in which it does."""
        for request in list(self.running):
            if room(request, request.issued, request.long) > 0:
                yield request
        admitted_words = passed = 0
        while admit and passed < len(self.waiting) and self._slots.free:
            request = self.waiting[-1 - passed]
            likely = request.known - request.uncached
            if room(request, likely, self._is_long(request, likely)) <= 0:
                return
            if passed and request.new.priority < self.waiting[-1].new.priority:
                return
            hits = self._cache.hits(request)
            if passed < _PASSED and self._cache.is_coming(request, hits, self.running):
                passed += 1  # it waits a little, and computes less
                continue
            before, admitted_words = admitted_words, admitted_words + _words(request)
            if before and admitted_words > _ADMITTED_WORDS:
                return
            watermark = self._limits.watermark_blocks if self._batches or self.running else 0
            if not self._cache.fits(request, hits, watermark):
                return
            start = len(hits) * self._limits.block_size
            long = self._is_long(request, start)
            if room(request, start, long) <= 0:  # the prefix cache holds less, or more, than was likely
                return
            self.waiting.pop(-1 - passed)
            self._admit(request, hits, long)
            yield request

    def _is_long(self, request: Request, start: int) -> bool:
        alone = Work().with_chunk(start, request.known - start)
        return self._step_times.seconds(alone) > self._step_length.at_once_s

    def _admit(self, request: Request, hits: list[int], long: bool) -> None:
        self._cache.admit(request, hits)
        request.slot = self._slots.free.pop()
        if not request.admitted:
            request.cached = request.issued
        request.long = long
        self._admissions += 1
        request.admitted = self._admissions
        request.phase = Phase.PREFILLING
        self.running.append(request)


def _words(request: Request) -> int:
    """Of four bytes, that admitting it takes in a step."""
    return request.known + len(request.new.sampling.to_bytes()) // 4
