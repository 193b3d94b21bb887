"""Whatever arrives, stops, fails, is cancelled or preempted, with any number of stages: every request gets exactly its
own right tokens, and every block and slot comes back."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.worker.paged_device import CURSED, VOCABULARY, right_answer, word
from support.worker.spoilt_device import SpoiltDevice

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.scheduler import Invalid, Limits, Scheduler

CONTEXT = 40
ASKS = (
    SamplingParams(),
    SamplingParams(),
    SamplingParams(logprobs=0),
    SamplingParams(prompt_logprobs=0),
    SamplingParams(logprobs=1, prompt_logprobs=0),
)
PHRASES = ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9, 9, 9], [5, 5, 5, 5], [6], [CURSED, 1])


@dataclass
class Client:
    new: NewRequest
    tokens: list[int] = field(default_factory=list)
    finish: Finish = Finish.NOT_FINISHED
    cancelled: bool = False
    scores: bytes = b""
    prompt_scores: bytes = b""
    hits: int = 0  # tokens that it found in the prefix cache when it first began
    cached: int = 0  # as reported

    def check_scores(self) -> None:
        """Each token's log-probability came with it, the prompt's each once and in order; none if not asked for."""
        asked = self.new.sampling
        known = [*self.new.prompt, *self.new.generated]
        words = [word([*known, *self.tokens[: end + 1]]) for end in range(len(self.tokens))]
        assert self.scores == (b"".join(words) if asked.logprobs is not None else b"")
        prompt = list(self.new.prompt)
        words = [word(prompt[: end + 1]) for end in range(1, len(prompt))] if asked.prompt_logprobs is not None else []
        whole = b"".join(words)
        assert whole.startswith(self.prompt_scores)
        assert self.prompt_scores == whole or not (self.tokens or self.finish in (Finish.STOP, Finish.LENGTH))


class Traffic(RuleBasedStateMachine):
    """Arrivals, cancels, steps and results in any order."""

    @initialize(
        stages=st.integers(1, 4),
        depth=st.sampled_from((None, 1, 2, 3)),
        blocks=st.one_of(st.integers(5, 9), st.integers(6, 24)),
        budget=st.integers(2, 24),
        slots=st.integers(1, 6),
        caching=st.booleans(),
        watermark=st.sampled_from((0.0, 0.1, 0.4)),
    )
    def start(self, stages, depth, blocks, budget, slots, caching, watermark) -> None:  # type: ignore[no-untyped-def]
        depth = depth or stages + 1
        self.limits = Limits(blocks, 4, budget, slots, CONTEXT, depth, caching, watermark, stages)
        self.scheduler = Scheduler(self.limits)
        self.device = SpoiltDevice(4)
        self.in_flight: deque[tuple[Step, StepResult]] = deque()
        self.clients: dict[int, Client] = {}
        self.begun: set[int] = set()

    @rule(
        phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=4),
        cut=st.integers(0, 3),
        generated=st.lists(st.integers(0, VOCABULARY - 1), max_size=2),
        max_tokens=st.integers(1, 30),
        copies=st.integers(1, 3),
        stops=st.sampled_from(((), (7,), (1, 2, 3), tuple(range(20, 30)))),
        priority=st.integers(-1, 1),
        sampling=st.sampled_from(ASKS),
    )
    def arrive(self, phrases, cut, generated, max_tokens, copies, stops, priority, sampling) -> None:  # type: ignore[no-untyped-def]
        prompt = [token for phrase in phrases for token in phrase]
        prompt = prompt[: max(1, len(prompt) - cut)]
        for _ in range(copies):
            new = NewRequest(
                key=len(self.clients),
                prompt=tuple(prompt),
                generated=tuple(generated),
                sampling=sampling,
                max_tokens=max_tokens,
                stop_ids=frozenset(stops),
                priority=priority,
            )
            self.submit(new)

    def submit(self, new: NewRequest) -> None:
        try:
            self.scheduler.submit(new)
        except Invalid:
            last = min(len(new.prompt) + new.max_tokens, CONTEXT) - 1
            assert len(new.generated) >= new.max_tokens or last > self.limits.blocks * 4, "refused without need"
        else:
            self.clients[new.key] = Client(new)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.clients)))
        self.scheduler.cancel(key)
        self.clients[key].cancelled = True

    @rule(times=st.integers(1, 3))
    def issue(self, times: int) -> None:
        for _ in range(times):
            self.take(self.scheduler.schedule())

    @rule()
    def issue_heartbeat(self) -> None:
        self.take(self.scheduler.heartbeat())

    @precondition(lambda self: self.in_flight)
    @rule(seconds=st.one_of(st.sampled_from((0.001, 0.05, 3.0)), st.floats(1e-6, 60.0)))
    def finish_step(self, seconds: float) -> None:
        step, result = self.in_flight.popleft()
        for output in self.scheduler.update(result):
            self.show(output)
        self.scheduler.observe(step.number, seconds)

    @rule(rounds=st.integers(1, 20))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.issue(self.limits.depth)
            if self.in_flight:
                self.finish_step(0.01)

    def take(self, step: Step | None) -> None:
        assert not self.scheduler.refused(), "a step that no rank may compute"
        if step is None:
            return
        forward = step.forward
        busy = {slot for earlier, _ in self.in_flight for slot in earlier.forward.slots}
        assert not busy.intersection(admit.slot for admit in forward.admits), "a slot was reused under a step"
        assert forward.tokens <= self.limits.max_batch_tokens
        assert len(set(forward.slots)) == len(forward.slots)
        assert list(forward.counts) == sorted(forward.counts, key=lambda count: count > 1), "decode rows come first"
        self.note_hits(step)
        self.in_flight.append((step, self.device.run(step)))
        assert len(self.in_flight) <= self.limits.depth
        assert self.scheduler.predict(step) >= 0

    def note_hits(self, step: Step) -> None:
        """A row begins behind what its request has found; that of its first admission is reported."""
        starts = dict(zip(step.forward.slots, step.forward.starts, strict=True))
        admitted = {admit.slot for admit in step.forward.admits}
        for key, request in self.scheduler._requests.live.items():
            if request.slot in admitted and key not in self.begun:
                self.begun.add(key)
                self.clients[key].hits = starts[request.slot]

    def show(self, output: Output) -> None:
        client = self.clients[output.key]
        assert not client.cancelled, "an output after its cancel"
        assert client.finish is Finish.NOT_FINISHED, "an output after the last"
        right, finish = right_answer(client.new, CONTEXT)
        client.tokens += output.ids
        if output.scores is not None:
            client.scores += output.scores.tokens
            client.prompt_scores += output.scores.prompt
        client.check_scores()
        client.cached += output.cached
        assert client.cached == client.hits or (not client.tokens and output.finish in (0, Finish.FAILED)), (
            "reported once"
        )
        client.finish = output.finish
        assert client.tokens == right[: len(client.tokens)], "a wrong, repeated or lost token"
        if output.finish:
            assert (client.tokens, client.finish) == (right, finish)

    @invariant()
    def blocks_are_conserved(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        requests, total = self.scheduler._requests, self.limits.blocks
        blocks, holders = requests.cache.blocks, [*requests.micro_batches.requests, *requests.prefill.running]
        assert sum(blocks.uses(block) > 0 for block in range(total)) + blocks.free == total
        assert sum(map(blocks.uses, range(total))) == sum(len(request.blocks) for request in holders)
        assert self.limits.prefix_caching or not blocks.cached

    @invariant()
    def the_context_of_a_batch_is_that_of_its_requests(self) -> None:
        """By it the scheduler predicts how long a step takes: load that has left must not stay in it."""
        if not hasattr(self, "scheduler"):
            return
        for batch in self.scheduler._requests.micro_batches:
            assert batch.context == sum(base + batch._tick for base in batch._bases)

    @invariant()
    def what_was_preempted_counts_whole_among_the_tokens_to_compute(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        waiting = self.scheduler._requests.prefill.waiting
        assert all(request.uncached == request.known for request in waiting if request.admitted)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        steps = 0
        while self.in_flight or (step := self.scheduler.schedule()) is not None:
            if not self.in_flight:
                self.take(step)
            self.go_on(1)
            steps += 1
            assert steps < 50 * CONTEXT * (len(self.clients) + 1), "no progress"
        for client in self.clients.values():
            assert client.cancelled or client.finish, "a request was never finished"
        load = self.scheduler.load()
        assert (load.free_blocks, load.running, load.waiting, load.prompt_tokens) == (self.limits.blocks, 0, 0, 0)
        assert sorted(self.scheduler._requests.slots.free) == list(range(self.limits.slots))


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
