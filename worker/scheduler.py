"""One rule: tokens computed catch up with tokens known.

There is no prefill phase and no decode phase. `schedule` gives each request some of the tokens that it has and that no
step was given yet; `update` takes a step's results. Up to `depth` steps are under way, so that the device never waits:
a request may be issued the position of a token that the device has sampled and the host has not seen.

Steps run in order and results return in order, hence:
- Blocks are reusable as soon as nobody will issue a step that reads them: later writes come after earlier reads.
- A slot is reusable once the last step that names it has returned.
- A length stop is foreseen when its last position is issued. A stop id is found when a result returns: the request's
  entries in the steps under way are skipped then, so that nothing after the stop is shown.
- A preempted request comes back, recomputed from its known tokens, once no result is outstanding, in its old place.
- Full blocks of prompts enter the prefix cache when the step that fills them is issued; those of generated tokens
  when the request gives its blocks back.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat

from octavo.worker.cache.cache import Cache
from octavo.worker.chunk import Chunk, Decoding, assemble
from octavo.worker.lane import Lane, Members
from octavo.worker.limits import Limits
from octavo.worker.output import Load, Output
from octavo.worker.pace import Pace, Work
from octavo.worker.request import Finish, Invalid, NewRequest, Phase, Request
from octavo.worker.step import Blocks, Forward, Sample, Step, StepResult
from octavo.worker.stops import Stops
from octavo.worker.underway import UnderWay

__all__ = ["Invalid", "Limits", "Load", "Output", "Scheduler"]

_NOBODY = Members((), (), (), (), (), ())
_ADMITTED_TOKENS = 1 << 21  # of all that one step admits: a step carries their ids, and its ring has an end
_output = partial(tuple.__new__, Output)  # Output._make without its Python call: 256 times a step


class Scheduler:
    def __init__(self, limits: Limits, pace: Pace | None = None) -> None:
        self._limits = limits
        self._pace = pace or Pace(least=limits.block_size)
        self._cache = Cache(limits)
        # A decoding request has a row in every step, so there are never more requests than a step has tokens.
        self._slots = list(range(min(limits.max_requests, limits.max_batch_tokens) - 1, -1, -1))
        self._live: dict[int, Request] = {}  # by key
        self._waiting: list[Request] = []  # the next one stands last
        self._prefilling: list[Request] = []  # in order of admission
        self._lane = Lane(limits.block_size)
        self._leaving: list[Request] = []  # hold a slot that steps under way still name
        self._under_way: deque[UnderWay] = deque()
        self._work: dict[int, Work] = {}  # of steps whose seconds have not been told; heartbeats teach nothing
        self._stops = Stops()
        self._number = 0  # newest step issued
        self._returned = 0  # newest step whose result has come
        self._received = 0
        self._admissions = 0
        self._preemptions = 0

    # What arrives

    def submit(self, new: NewRequest) -> None:
        """Queue a request. Raises Invalid when it can never run; max_tokens beyond the context is cut to it."""
        self._received += 1
        if new.key in self._live:
            raise Invalid("key", f"{new.key} is in use; keys are never used twice")
        self._limits.check(new)
        request = Request(new, self._received, self._limits.total(new), [*new.prompt, *new.generated])
        if self._limits.prefix_caching:
            request.hashes = list(new.hashes[: request.known // self._limits.block_size])
            request.expected_hits = len(self._cache.hits(request)) * self._limits.block_size
        self._live[new.key] = request
        self._stops.add(new.stop_ids)
        self._wait(request)

    def cancel(self, key: int) -> None:
        """Forget a request: no output of it follows. Unknown keys are ignored."""
        request = self._live.get(key)
        if request is not None:
            self._end(request)

    def observe(self, number: int, seconds: float) -> None:
        """Step `number` occupied the device for so long; called once its result is here."""
        work = self._work.pop(number, None)
        if work is not None:
            self._pace.observe(work, seconds)

    def predict(self, step: Step) -> float:
        """Seconds that an issued step should take at most, unless something is wrong."""
        return self._pace.patience(self._work.get(step.number, Work()))

    # Steps out

    def schedule(self) -> Step | None:
        """The next step; None when `depth` steps are under way or there is nothing to do."""
        if len(self._under_way) >= self._limits.depth:
            return None
        admissions, preemptions = self._admissions, self._preemptions
        appends = self._grow()
        chunks, work = self._prefill(admit=self._preemptions == preemptions)
        if not self._lane and not chunks:
            return None
        self._number += 1
        admitted = [chunk.request for chunk in chunks if chunk.request.admitted > admissions]
        appends += [Blocks(request.slot, 0, tuple(request.blocks)) for request in admitted]
        decoding = Decoding(self._lane.members(), *self._lane.advance(self._number))
        step = assemble(self._number, admitted, appends, decoding, chunks)
        self._move_on(decoding.members, chunks)
        self._work[self._number] = work
        self._work.pop(self._number - 64, None)  # nobody told
        return step

    def heartbeat(self) -> Step | None:
        """A step without rows, to see that the ranks live; None when `depth` steps are under way."""
        if len(self._under_way) >= self._limits.depth:
            return None
        self._number += 1
        self._under_way.append(UnderWay(self._number, _NOBODY))
        return Step(self._number, Forward(), Sample())

    def _grow(self) -> list[Blocks]:
        """A block for each decoding request that needs one, if need be taken from the least deserving."""
        grown: dict[Request, Blocks] = {}
        for request in self._lane.short():
            while not self._cache.blocks.free and request.phase is Phase.DECODING:
                victim = self._victim()
                grown.pop(victim, None)
                self._preempt(victim)
            if request.phase is Phase.DECODING:
                grown[request] = Blocks(request.slot, len(request.blocks), (self._cache.grow(request),))
                self._lane.grown(request)
        return list(grown.values())

    def _victim(self) -> Request:
        """The last admitted of the lowest priority."""
        running = [*self._lane.requests, *self._prefilling]
        return min(running, key=lambda request: (request.new.priority, -request.admitted))

    def _preempt(self, request: Request) -> None:
        self._preemptions += 1
        self._stop_running(request)
        self._give_back(request)
        request.issued = request.indexed = request.expected_hits = 0
        request.phase = Phase.PREEMPTED
        self._leave_slot(request)

    def _prefill(self, admit: bool) -> tuple[list[Chunk], Work]:
        """Chunks of those admitted before, then of the waiting, within the token budget and the time left to prefill.

        A chunk of one token goes first, beside the decoding rows.
        """
        budget = self._limits.max_batch_tokens - len(self._lane)
        decode = work = Work(len(self._lane), self._lane.context)
        chunks: list[Chunk] = []

        def has_room(one: Request) -> bool:
            return budget > 0 and self._room(decode, work, one) > 0

        for request in self._candidates(admit, has_room):
            start = request.issued
            chunk = Chunk(request, start, min(request.known - start, budget, self._room(decode, work, request)))
            chunks.append(chunk)
            work = work.with_chunk(start, chunk.count)
            budget -= chunk.count
        return sorted(chunks, key=lambda chunk: chunk.count > 1), work

    def _room(self, decode: Work, work: Work, request: Request) -> int:
        """Tokens of `request` that the time of this step still allows."""
        if not self._lane:
            return self._limits.max_batch_tokens
        waits = request.phase is Phase.WAITING
        start = request.known - request.uncached if waits else request.issued
        gentle = self._pace.is_long(start, request.known - start) if waits else request.long
        crowd = (len(self._waiting) + len(self._prefilling)) / len(self._lane)
        return self._pace.room(decode, work, start, gentle, crowd)

    def _candidates(self, admit: bool, has_room: Callable[[Request], bool]) -> Iterator[Request]:
        yield from filter(has_room, list(self._prefilling))
        admitted_tokens = 0
        while admit and self._waiting and self._slots and has_room(self._waiting[-1]):
            request = self._waiting[-1]
            admitted_tokens += request.known
            if request.known < admitted_tokens > _ADMITTED_TOKENS:
                return
            hits = self._cache.hits(request)
            watermark = self._limits.watermark_blocks if self._lane or self._prefilling else 0
            if not self._cache.fits(request, hits, watermark):
                return
            self._waiting.pop()
            self._take_in(request, hits)
            yield request

    def _take_in(self, request: Request, hits: list[int]) -> None:
        self._cache.admit(request, hits)
        request.slot = self._slots.pop()
        if not request.admitted:
            request.cached = request.issued
        request.long = self._pace.is_long(request.issued, request.known - request.issued)
        self._admissions += 1
        request.admitted = self._admissions
        request.phase = Phase.PREFILLING
        self._prefilling.append(request)

    def _move_on(self, members: Members, chunks: list[Chunk]) -> None:
        """Everybody's state as if the step had run."""
        others = tuple(chunk.request for chunk in chunks if chunk.samples)
        done = self._lane.done()
        last = {members.requests.index(request) for request in done}
        for request in done:
            self._all_issued(request)
        for chunk in chunks:
            self._move_on_prefill(chunk)
        last.update(entry for entry, request in enumerate(others, len(members.rows)) if request.phase is Phase.ISSUED)
        prefill_tokens = sum(chunk.count for chunk in chunks)
        self._under_way.append(UnderWay(self._number, members, others, last, prefill_tokens))

    def _move_on_prefill(self, chunk: Chunk) -> None:
        request, samples = chunk.request, chunk.samples
        request.issued += chunk.count
        request.last_step = self._number
        self._cache.index(request)
        if samples and request.known == request.total - 1:
            self._all_issued(request)
        elif samples:
            self._prefilling.remove(request)
            self._lane.join(request)

    def _all_issued(self, request: Request) -> None:
        self._stop_running(request)
        self._give_back(request)
        request.phase = Phase.ISSUED
        self._leave_slot(request)

    # Results in

    def update(self, result: StepResult) -> list[Output]:
        """Take the result of the oldest step under way. Raises ValueError when it is another's, or of another size."""
        step = self._under_way[0] if self._under_way else None
        if step is None or step.number != result.number:
            raise ValueError(f"result of step {result.number}, awaited is {step.number if step else 'none'}")
        if len(result.ids) != step.entries:
            raise ValueError(f"step {step.number}: {len(result.ids)} ids for {step.entries} sampled rows")
        self._under_way.popleft()
        self._returned = step.number
        members, ids = step.members, result.ids
        for append, token in zip(members.appends, ids, strict=False):
            append(token)
        for request, token in zip(step.others, ids[len(members.keys) :], strict=True):
            request.tokens.append(token)
        keys = members.keys + tuple(request.new.key for request in step.others)
        outputs = list(map(_output, zip(keys, zip(ids, strict=True), repeat(Finish.NOT_FINISHED), repeat(0))))
        dropped = self._settle(step, result, outputs)
        leaving, self._leaving = self._leaving, []
        for request in leaving:
            self._leave_slot(request)
        return [output for entry, output in enumerate(outputs) if entry not in dropped] if dropped else outputs

    def _settle(self, step: UnderWay, result: StepResult, outputs: list[Output]) -> set[int]:
        """Correct the outputs of entries that are not just one more token; returns those not to be shown."""
        special = step.last.union(range(len(step.members.keys), step.entries), result.failed)
        special.update(self._stops.among(result.ids))
        special -= step.skipped
        for entry in special:
            request = step.request(entry)
            token = result.ids[entry]
            finish = Finish.NOT_FINISHED
            if entry in result.failed:
                finish = Finish.FAILED
            elif token in request.new.stop_ids:
                finish = Finish.STOP
            elif entry in step.last:
                finish = Finish.LENGTH
            shown = (token,) if finish in (Finish.NOT_FINISHED, Finish.LENGTH) else ()
            outputs[entry] = Output(request.new.key, shown, finish, request.cached)
            request.cached = 0
            if finish is not Finish.NOT_FINISHED:
                self._end(request, spoilt=finish is Finish.FAILED)
        return step.skipped

    def load(self) -> Load:
        under_way = sum(step.prefill_tokens for step in self._under_way)
        queued = sum(request.uncached for request in (*self._waiting, *self._prefilling))
        return Load(
            prompt_tokens=queued + under_way,
            running=len(self._lane) + len(self._prefilling),
            waiting=len(self._waiting),
            free_blocks=self._cache.blocks.free,
            total_blocks=self._cache.blocks.total,
            cached_blocks=self._cache.blocks.cached,
            received=self._received,
            preemptions=self._preemptions,
            cache_queries=self._cache.queried_tokens,
            cache_hits=self._cache.hit_tokens,
        )

    # Changes of one request

    def _wait(self, request: Request) -> None:
        request.phase = Phase.WAITING
        insort(self._waiting, request, key=lambda waiting: (waiting.new.priority, -waiting.arrival))

    def _stop_running(self, request: Request) -> None:
        if request.phase is Phase.DECODING:
            self._lane.leave(request)
        else:
            self._prefilling.remove(request)

    def _end(self, request: Request, spoilt: bool = False) -> None:
        """Nothing more of this request will be shown. spoilt: its KV must not be found by others."""
        if spoilt:
            request.tokens.pop()
            self._cache.spoil(request)
        if request.phase is Phase.WAITING:
            self._waiting.remove(request)
        elif request.phase in (Phase.PREFILLING, Phase.DECODING):
            self._stop_running(request)
            self._give_back(request, index=not spoilt)
            self._leave_slot(request)
        request.phase = Phase.OVER
        for step in self._under_way:
            step.skip(request)
        del self._live[request.new.key]
        self._stops.drop(request.new.stop_ids)

    def _leave_slot(self, request: Request) -> None:
        """Free the slot if no step under way names it, else at a later result."""
        if request.last_step > self._returned:
            self._leaving.append(request)
            return
        self._slots.append(request.slot)
        request.slot = -1
        if request.phase is Phase.PREEMPTED:
            self._wait(request)

    def _give_back(self, request: Request, index: bool = True) -> None:
        if index:
            self._cache.index(request)
        self._cache.give_back(request)
