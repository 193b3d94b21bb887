"""A simulated GPU with the scheduler on it, on a clock of its own: arrivals in, the times of tokens out. No I/O."""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.graphs import MIXED_TOKENS
from octavo.worker.messages.request import NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.scheduler import Limits, Scheduler
from octavo.worker.scheduler.step_length import step_length_of
from octavo.worker.scheduler.step_time_model import StepTimeModel

BATCH_TOKENS = 8192  # of a step
PYTHON_S = 0.0003  # of the host between the end of a step and the issue of the next but one
# Requests, and tokens in and out of each: what a server that has run for a while has seen.
WARM = ((1, 128, 64), (8, 128, 200), (64, 512, 256), (1, 20_000, 2), (32, 1024, 300), (64, 2048, 100), (4, 2048, 100))


def step_s(step: Step) -> float:
    """Seconds on an H200, 8B in bfloat16: within 5 % of the steps of engine.py's workloads and of longer prompts. Steps
    of up to 1,024 tokens with a chunk of a prompt are padded to the size of a graph, and a chunk takes some time."""
    forward = step.forward
    pairs = zip(forward.starts, forward.counts, strict=True)
    reads = sum(start for start, tokens in pairs if tokens == 1)
    return work_s(forward.tokens, reads, _attended(step), len(forward.slots))


def work_s(tokens: int, reads: int, attended: float, rows: int = 1) -> float:
    """reads: positions that rows of one token attend to; attended: of chunks, summed over their tokens."""
    if attended:
        tokens = next((size for size in MIXED_TOKENS if size >= max(tokens, 2 * rows)), tokens)
    products = (0.0037**4 + (2.2e-5 * tokens) ** 4) ** 0.25
    return 0.0006 + products + 3.6e-8 * reads + (0.0018 + 8.7e-10 * attended if attended else 0.0)


def _attended(step: Step) -> float:
    chunks = zip(step.forward.starts, step.forward.counts, strict=True)
    return sum(tokens * (start + tokens / 2) for start, tokens in chunks if tokens > 1)


def alone_s(prompt: int) -> float:
    """Seconds to read a prompt with nothing beside it."""
    chunks = [(start, min(BATCH_TOKENS, prompt - start)) for start in range(0, prompt, BATCH_TOKENS)]
    return sum(work_s(tokens, 0, tokens * (start + tokens / 2)) for start, tokens in chunks)


@dataclass(frozen=True, slots=True)
class Arrival:
    """follows: it arrives when that one has ended, not at at_s. until_s: it is given up then."""

    at_s: float
    prompt: int
    new_tokens: int
    follows: int | None = None
    until_s: float = 1e9


@dataclass(slots=True)
class Seen:
    sent_s: float = 0.0
    tokens_s: list[float] = field(default_factory=list)

    @property
    def first_s(self) -> float:
        return self.tokens_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.tokens_s)]


class Simulation:
    """One server, from the first arrival until nothing is left."""

    def __init__(self, arrivals: Sequence[Arrival], max_requests: int, interval_s: float | None) -> None:
        self._arrivals = arrivals
        limits = Limits(60_000, 16, BATCH_TOKENS, max_requests, 131_072, prefix_caching=False)
        self._scheduler = Scheduler(limits, step_length_of("cuda", interval_s=interval_s), StepTimeModel(MIXED_TOKENS))
        self._warm()
        self.seen = [Seen() for _ in arrivals]
        self._due = [(one.at_s, key) for key, one in enumerate(arrivals) if one.follows is None]
        heapq.heapify(self._due)
        self._after = {one.follows: key for key, one in enumerate(arrivals) if one.follows is not None}
        self._in_flight: deque[tuple[Step, float]] = deque()  # and when it ends
        self._busy_s = 0.0

    def _warm(self) -> None:
        """What steps take is learned, as a server that has run for a while knows it."""
        keys, noise = count(10**6), random.Random(3)
        for requests, prompt, new in WARM:
            for _ in range(requests):
                self._scheduler.submit(_request(next(keys), prompt, new))
            while (step := self._scheduler.schedule()) is not None:
                self._scheduler.update(_result(step))
                self._scheduler.observe(step.number, step_s(step) * noise.uniform(0.98, 1.02))

    def run(self) -> float:
        """Seconds until the last token."""
        now, noise, cancels = 0.0, random.Random(4), list[tuple[float, int]]()
        while True:
            while self._due and self._due[0][0] <= now:
                at, key = heapq.heappop(self._due)
                one = self._arrivals[key]
                self.seen[key].sent_s = at
                self._scheduler.submit(_request(key, one.prompt, one.new_tokens))
                if one.until_s < 1e9:
                    heapq.heappush(cancels, (one.until_s, key))
            while cancels and cancels[0][0] <= now:
                self._scheduler.cancel(heapq.heappop(cancels)[1])
            while (step := self._scheduler.schedule()) is not None:
                begin = max(now, self._busy_s)
                self._busy_s = begin + step_s(step) * noise.uniform(0.98, 1.02)
                self._in_flight.append((step, self._busy_s))
                self._scheduler.observe(step.number, self._busy_s - begin)  # its times matter only later
            if self._in_flight:
                ends = self._in_flight[0][1]
                if self._due and self._due[0][0] < ends:
                    now = max(now, self._due[0][0])
                    continue
                now = ends + PYTHON_S
                self._returned(self._in_flight.popleft()[0], ends)
            elif self._due:
                now = self._due[0][0]
            else:
                return max(one.tokens_s[-1] for one in self.seen if one.tokens_s)

    def _returned(self, step: Step, ended_s: float) -> None:
        for output in self._scheduler.update(_result(step)):
            seen = self.seen[output.key]
            seen.tokens_s.extend([ended_s] * len(output.ids))
            if output.finish and (follower := self._after.get(output.key)) is not None:
                heapq.heappush(self._due, (ended_s + 0.002, follower))


def _request(key: int, prompt: int, new_tokens: int) -> NewRequest:
    return NewRequest(key, (7,) * prompt, SamplingParams(), new_tokens)


def _result(step: Step) -> StepResult:
    return StepResult(step.number, (7,) * len(step.sample.rows))
