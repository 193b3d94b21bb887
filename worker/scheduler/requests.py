"""All requests of a scheduler, the resources that they hold, and their ways from phase to phase
(messages/request.py)."""

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Invalid, NewRequest, Phase, Request, Scoring
from octavo.worker.messages.step import Blocks
from octavo.worker.scheduler.decode_batch import DecodeBatch
from octavo.worker.scheduler.kv_cache.kv_quarantine import QuarantiningCache
from octavo.worker.scheduler.micro_batches import MicroBatches
from octavo.worker.scheduler.prefill import Prefill
from octavo.worker.scheduler.slots import Slots
from octavo.worker.scheduler.step_builder import Chunk
from octavo.worker.scheduler.step_length import StepLength, StreamAges
from octavo.worker.scheduler.step_time_model import StepTimeModel
from octavo.worker.scheduler.stops import Stops


class Requests:
    def __init__(self, limits: Limits, step_length: StepLength, step_times: StepTimeModel) -> None:
        self._limits = limits
        self.live: dict[int, Request] = {}  # by key
        self.cache = QuarantiningCache(limits)
        self.slots = Slots(limits.slots)
        self.micro_batches = MicroBatches(limits)
        self.ages = StreamAges()
        self.prefill = Prefill(limits, step_length, step_times, self.cache, self.slots, self.micro_batches, self.ages)
        self.stops = Stops()
        self.received = 0
        self.preemptions = 0

    def submit(self, new: NewRequest) -> None:
        """Queue a request. Raises Invalid when it can never run; max_tokens beyond the context is cut to it."""
        self.received += 1
        if new.key in self.live:
            raise Invalid("key", f"{new.key} is in use; keys are never used twice")
        self._limits.check(new)
        request = Request(new, self.received, self._limits.total(new), [*new.prompt, *new.generated])
        if new.sampling.prompt_logprobs is not None:
            request.scoring = Scoring(end=len(new.prompt))
        if self._limits.prefix_caching:
            request.hashes = list(new.hashes[: request.known // self._limits.block_size])
            request.expected_hits = len(self.cache.hits(request)) * self._limits.block_size
        self.live[new.key] = request
        self.stops.add(new.stop_ids)
        self.ages.arrived(request)
        self.prefill.wait(request)

    def grow(self, batch: DecodeBatch) -> list[Blocks]:
        """A block for each request of the batch that needs one, if need be taken from the least deserving of all."""
        while len(growing := batch.needing_block()) > self.cache.blocks.free:
            self._preempt(self._victim())
        grown = [Blocks(request.slot, len(request.blocks), (self.cache.grow(request),)) for request in growing]
        batch.grown()
        return grown

    def _victim(self) -> Request:
        """The last admitted of the lowest priority."""
        running = [*self.micro_batches.requests, *self.prefill.running]
        return min(running, key=lambda request: (request.new.priority, -request.admitted))

    def _preempt(self, request: Request) -> None:
        self.preemptions += 1
        self._leave(request, Phase.PREEMPTED)
        _begin_again(request)

    def computed(self, chunk: Chunk, number: int) -> None:
        """The chunk was issued in step `number`."""
        request, samples = chunk.request, chunk.samples
        if request.scoring is not None and (scored := chunk.scored) is not None:
            request.scoring.issued = chunk.start + 1 + sum(scored)
        request.issued += chunk.count
        request.last_step = number
        self.cache.index(request)
        if samples and request.known == request.total - 1:
            self.all_issued(request)
        elif samples:
            self.prefill.running.remove(request)
            self.micro_batches.join(request)
            self.ages.began(request)

    def all_issued(self, request: Request) -> None:
        """Its last position was issued: what it needs no more, others may have."""
        self._leave(request, Phase.ISSUED)

    def end(self, request: Request, failed: bool = False) -> None:
        """Nothing more of it will be shown."""
        if request.phase is Phase.WAITING:
            self.prefill.waiting.remove(request)
        self._leave(request, Phase.OVER, failed)
        self.cache.ended(request)
        del self.live[request.new.key]
        self.stops.drop(request.new.stop_ids)

    def recompute(self, request: Request) -> None:
        """From its known tokens, all of which are right, and untouched by what others may have poisoned."""
        self.cache.isolate(request)
        self._leave(request, Phase.PREEMPTED, failed=True)
        if request.scoring is not None:
            request.scoring.issued = request.scoring.returned
        _begin_again(request)

    def settle(self) -> None:
        """Continue requests for which no result is to come any more."""
        for request in self.slots.left():
            self._slot_left(request)

    def _leave(self, request: Request, phase: Phase, failed: bool = False) -> None:
        """Run no more, if it does: blocks go at once, the slot once no step under way names it."""
        before, request.phase = request.phase, phase
        runs = before in (Phase.PREFILLING, Phase.DECODING)
        if before is Phase.DECODING:
            self.micro_batches.leave(request)
            self.ages.ended(request)
        elif before is Phase.PREFILLING:
            self.prefill.running.remove(request)
        if runs:
            self.cache.leave(request, failed)
        if failed:
            self.cache.failed(request, self.live.values())
        if runs and self.slots.leave(request):
            self._slot_left(request)

    def _slot_left(self, request: Request) -> None:
        self.cache.settled(request)
        if request.phase is Phase.PREEMPTED:
            self.prefill.wait(request)


def _begin_again(request: Request) -> None:
    request.issued = request.indexed = request.expected_hits = 0
