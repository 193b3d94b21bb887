"""One rule: tokens computed catch up with tokens known.

There is no prefill phase and no decode phase. `schedule` gives each request some of the tokens that it has and that no
step was given yet; `update` takes a step's results. Up to `depth` steps are under way, so that the device never waits:
a request may be issued the position of a token that the device has sampled and the host has not seen. A pipeline has
one micro-batch a stage (micro_batches.py): a request that decodes is in one of them, prefill is part of any step.

Steps run in order on every stage and results return in order, hence:
- Blocks are reusable as soon as no step will be issued that reads them: later writes come after earlier reads.
- A slot is reusable once the last step that names it has returned.
- A length stop is foreseen when its last position is issued. A stop id is found when a result returns: the request's
  entries in the steps under way are skipped then, so that nothing after the stop is shown.
- A preempted request comes back, recomputed from its known tokens, once no result is outstanding, in its old place.
- Full blocks of prompts enter the prefix cache when the step that fills them is issued; blocks of generated tokens
  when the request gives its blocks back.
- What a failed request wrote is zeroed, and its failure is believed when it was out of the reach of others
  (kv_cache/kv_quarantine.py).
- A step that no rank may compute (messages/step_check.py) is never issued: its requests fail, the others go on.
"""

from collections import deque
from dataclasses import dataclass

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.output import Load, Output, Outputs
from octavo.worker.messages.request import Finish, Invalid, NewRequest, Phase, Request
from octavo.worker.messages.step import Blocks, Forward, Sample, Step, StepResult
from octavo.worker.messages.step_check import InvalidStep, StepCheck
from octavo.worker.scheduler.decode_batch import DecodeBatch, Members
from octavo.worker.scheduler.in_flight import NO_MEMBERS, InFlightStep, ScoredPart
from octavo.worker.scheduler.prefill import PrefillPlan
from octavo.worker.scheduler.requests import Requests
from octavo.worker.scheduler.step_builder import Chunk, Decoding, StepChanges, build_step
from octavo.worker.scheduler.step_length import StepLength
from octavo.worker.scheduler.step_time_model import StepTimeModel, Work

__all__ = ["Invalid", "Limits", "Load", "Output", "Outputs", "RefusedStep", "Scheduler"]


_MODERATE = StepLength()


@dataclass(frozen=True, slots=True)
class RefusedStep:
    """A step that was not issued. message: what is wrong with it. outputs: the ends of its requests."""

    message: str
    outputs: Outputs


class Scheduler:
    def __init__(
        self, limits: Limits, step_length: StepLength = _MODERATE, step_times: StepTimeModel | None = None
    ) -> None:
        """step_times: of an engine that has served before, on the same device."""
        self._limits = limits
        self._step_times = step_times or StepTimeModel()
        self._requests = Requests(limits, step_length, self._step_times)
        self._in_flight: deque[InFlightStep] = deque()
        self._work: dict[int, Work] = {}  # of steps whose seconds have not been observed; heartbeats teach nothing
        self._number = 0  # newest step issued
        self._check = StepCheck(
            slots=limits.slots, blocks=limits.blocks, block_size=limits.block_size,
            max_batch_tokens=limits.max_batch_tokens, context_length=limits.context_length,
        )  # fmt: skip
        self._refused: list[RefusedStep] = []

    # What arrives

    def submit(self, new: NewRequest) -> None:
        """Queue a request. Raises Invalid when it can never run; max_tokens beyond the context is cut to it."""
        self._requests.submit(new)

    def refuse(self) -> None:
        """A request was received that is not submitted: the router's credit waits for the count of received
        requests."""
        self._requests.received += 1

    def cancel(self, key: int) -> None:
        """Forget a request: no output of it follows. Unknown keys are ignored."""
        request = self._requests.live.get(key)
        if request is not None:
            self._end(request)

    def observe(self, number: int, seconds: float) -> None:
        """Step `number` occupied the device for so long; called once its result is here."""
        self._requests.ages.now_s += seconds
        work = self._work.pop(number, None)
        if work is not None:
            self._step_times.observe(work, seconds)

    def predict(self, step: Step) -> float:
        """Seconds that an issued step should take at most, unless something is wrong."""
        return self._step_times.timeout(self._work.get(step.number, Work()))

    @property
    def idle(self) -> bool:
        """No request, and no step under way."""
        return not self._in_flight and not self._requests.live

    @property
    def has_requests(self) -> bool:
        return bool(self._requests.live)

    @property
    def owes_zeros(self) -> bool:
        """Blocks of requests that failed are to be zeroed by the next step."""
        return self._requests.cache.owes_zeros

    def forget_prefixes(self) -> None:
        """The KV cache is lost. Only when idle."""
        self._requests.cache.blocks.forget()

    # Steps out

    def schedule(self) -> Step | None:
        """The next step; None when `depth` steps are under way or there is nothing to do."""
        if len(self._in_flight) >= self._limits.depth:
            return None
        requests = self._requests
        preemptions = requests.preemptions
        requests.micro_batches.rebalance()
        for batch in requests.micro_batches.next_batches(self._number + 1):
            grown = requests.grow(batch)
            prefill = requests.prefill.plan(batch, admit=requests.preemptions == preemptions)
            if not batch.requests and not prefill.chunks:
                continue
            return self._issue(batch, grown, prefill) or self.schedule()
        return None

    def refused(self) -> list[RefusedStep]:
        """Steps that were not issued since the last call: faults of the scheduler, to be reported and counted."""
        refused, self._refused = self._refused, []
        return refused

    def sampled(self) -> tuple[int, ...]:
        """Keys of the requests that the newest step samples for, in the order of its entries."""
        newest = self._in_flight[-1]
        return newest.members.keys + tuple(request.new.key for request in newest.others)

    def heartbeat(self) -> Step | None:
        """A step without rows, to see that the ranks live; None when `depth` steps are under way."""
        if len(self._in_flight) >= self._limits.depth:
            return None
        self._number += 1
        self._in_flight.append(InFlightStep(self._number, NO_MEMBERS))
        step = Step(self._number, Forward(zeroed=self._requests.cache.due()), Sample())
        self._check.check(step)
        return step

    def _issue(self, batch: DecodeBatch, grown: list[Blocks], prefill: PrefillPlan) -> Step | None:
        """None: the step would have been invalid, and its requests have failed."""
        blocks = grown + [Blocks(request.slot, 0, tuple(request.blocks)) for request in prefill.admitted]
        changes = StepChanges(prefill.admitted, blocks, self._requests.cache.due())
        decoding = Decoding(batch.members(), *batch.advance(self._number + 1))
        step = build_step(self._number + 1, changes, decoding, prefill.chunks)
        try:
            self._check.check(step)
        except InvalidStep as error:
            self._requests.cache.zero_later(step.forward.zeroed)
            named = dict.fromkeys((*decoding.members.requests, *(chunk.request for chunk in prefill.chunks)))
            for request in named:
                self._end(request, failed=True)
            outputs = tuple(Output(request.new.key, (), Finish.FAILED) for request in named)
            self._refused.append(RefusedStep(str(error), Outputs(others=outputs)))
            return None
        self._number += 1
        self._move_on(batch, decoding.members, prefill)
        self._work[self._number] = prefill.work
        self._work.pop(self._number - 64, None)  # never observed
        return step

    def _move_on(self, batch: DecodeBatch, members: Members, prefill: PrefillPlan) -> None:
        """Everybody's state as if the step had run."""
        others = tuple(chunk.request for chunk in prefill.chunks if chunk.samples)
        scored, partial = _scored(prefill.chunks, len(members.rows), len(others))
        done = batch.done()
        last = {members.requests.index(request) for request in done}
        for request in done:
            self._requests.all_issued(request)
        for chunk in prefill.chunks:
            self._requests.computed(chunk, self._number)
        last.update(entry for entry, request in enumerate(others, len(members.rows)) if request.phase is Phase.ISSUED)
        in_flight = InFlightStep(self._number, members, others, last, prefill.tokens, scored=scored, partial=partial)
        self._in_flight.append(in_flight)

    # Results in

    def update(self, result: StepResult) -> Outputs:
        """Take the result of the oldest step under way. Raises ValueError when it is another's, or of another size."""
        if not self._in_flight:
            raise ValueError(f"result of step {result.number}, awaited is none")
        step = self._in_flight[0]
        step.check(result)
        self._in_flight.popleft()
        requests = self._requests
        requests.slots.returned = step.number
        for entry in step.skipped.intersection(result.failed):
            requests.cache.failed(step.request(entry), requests.live.values())
        special = step.take(result, requests.stops.among(result.ids))
        keys, ids = step.plain(result, special)
        for entry, output in special.items():
            if not output.finish:
                continue
            request, failed = step.request(entry), output.finish is Finish.FAILED
            if failed and not requests.cache.isolated(request):
                request.cached = output.cached
                requests.recompute(request)
                self._skip(request)
                step.skipped.add(entry)
            else:
                self._end(request, failed)
        requests.settle()
        return Outputs(keys, ids, tuple(output for entry, output in special.items() if entry not in step.skipped))

    def _end(self, request: Request, failed: bool = False) -> None:
        self._requests.end(request, failed)
        self._skip(request)

    def _skip(self, request: Request) -> None:
        """What the steps in flight sample for it is skipped."""
        for step in self._in_flight:
            step.skip(request)

    def load(self) -> Load:
        requests = self._requests
        prefill, blocks = requests.prefill, requests.cache.blocks
        in_flight = sum(step.prefill_tokens for step in self._in_flight)
        return Load(
            prompt_tokens=prefill.queued_tokens + in_flight,
            running=len(requests.micro_batches) + len(prefill.running),
            waiting=len(prefill.waiting),
            free_blocks=blocks.free,
            total_blocks=blocks.total,
            cached_blocks=blocks.cached,
            received=requests.received,
            preemptions=requests.preemptions,
            cache_queries=requests.cache.queried_tokens,
            cache_hits=requests.cache.hit_tokens,
        )


def _scored(chunks: list[Chunk], decoding: int, others: int) -> tuple[tuple[ScoredPart, ...], tuple[Request, ...]]:
    """Parts of prompts that get log-probabilities, and the requests among them that sample nothing in this step."""
    parts: list[ScoredPart] = []
    partial: list[Request] = []
    entry = decoding  # of the next chunk that samples
    for chunk in chunks:
        samples = chunk.samples
        if (scored := chunk.scored) is not None:
            own = entry if samples else decoding + others + len(partial)
            parts.append(ScoredPart(own, chunk.start + 1 + sum(scored)))
            if not samples:
                partial.append(chunk.request)
        entry += samples
    return tuple(parts), tuple(partial)
