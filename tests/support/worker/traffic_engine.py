"""An engine under traffic: requests arrive and leave while others run, and its steps take uneven times by its clock.

Nothing here depends on the machine's own speed: the same seed gives the same steps.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from support.worker.engine import Answer, LocalEngine
from support.worker.random_traffic import Arrival

from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish
from octavo.worker.messages.step import Forward, Step
from octavo.worker.runner.base import DeviceRunner, Pending
from octavo.worker.scheduler.step_length import step_length_of


@dataclass(frozen=True, slots=True)
class Setup:
    """How an engine is set up. device: whose pace it has. step_s, token_s, pair_s: what a step takes, each token of it,
    and each position that a token attends to."""

    blocks: int
    max_batch_tokens: int
    max_requests: int
    prefix_caching: bool
    device: str
    step_s: float
    token_s: float
    pair_s: float

    @staticmethod
    def drawn(rng: random.Random, runner: DeviceRunner, arrivals: Sequence[Arrival]) -> "Setup":
        """KV that holds the longest request or a few of them, so that requests are preempted."""
        least = max(-(-(len(one.new.prompt) + one.new.max_tokens) // 16) for one in arrivals)
        token_s = 10 ** rng.uniform(-4.5, -2.5)
        return Setup(
            blocks=min(runner.blocks, rng.choice((least, least + 4, 2 * least, 3 * least))),
            max_batch_tokens=min(runner.max_batch_tokens, rng.choice((32, 100, 512))),
            max_requests=min(runner.max_requests, rng.choice((6, 16, 32))),
            prefix_caching=rng.random() < 0.8,
            device=rng.choice(("cpu", "cuda")),
            step_s=10 ** rng.uniform(-4, -1.5),
            token_s=token_s,
            pair_s=token_s * 10 ** rng.uniform(-4, -2),
        )


class UnevenClock:
    """Goes on by what steps take: most of them about as long as their tokens say, some many times as long."""

    def __init__(self, rng: random.Random, setup: Setup) -> None:
        self._rng, self._setup = rng, setup
        self._now_ns = 0

    def __call__(self) -> int:
        return self._now_ns

    def spend(self, forward: Forward) -> None:
        setup = self._setup
        pairs = sum(count * (start + count / 2) for start, count in zip(forward.starts, forward.counts, strict=True))
        noise = self._rng.lognormvariate(0, 0.5) * (30 if self._rng.random() < 0.01 else 1)
        self._now_ns += int(1e9 * noise * (setup.step_s + setup.token_s * forward.tokens + setup.pair_s * pairs))


class TrafficEngine(LocalEngine):
    def __init__(self, runner: DeviceRunner, setup: Setup, rng: random.Random, stages: int = 1) -> None:
        self._uneven = UnevenClock(rng, setup)
        super().__init__(
            runner,
            blocks=setup.blocks,
            max_batch_tokens=setup.max_batch_tokens,
            max_requests=max(setup.max_requests, stages),
            step_length=step_length_of(setup.device, stages),
            stages=stages,
            prefix_caching=setup.prefix_caching,
            clock=self._uneven,
        )
        self._rng = rng
        self._forwards: deque[Forward] = deque()  # of the steps under way
        self.cancelled: set[int] = set()  # keys of requests that had not ended

    def serve(self, arrivals: Sequence[Arrival]) -> list[Answer]:
        """What each was answered; of cancelled requests as far as they came."""
        answers: dict[int, Answer] = {}
        in_flight: deque[Pending] = deque()
        coming, leaving = deque(arrivals), list[tuple[int, int]]()  # leaving: (turn, key)
        turn, open_keys = 0, set[int]()
        while coming or open_keys:
            if not open_keys:
                turn = max(turn, coming[0].turn)
            while coming and coming[0].turn <= turn:
                one = coming.popleft()
                self.scheduler.submit(one.new)
                answers[one.new.key] = Answer()
                open_keys.add(one.new.key)
                if one.cancel is not None:
                    leaving.append((turn + one.cancel, one.new.key))
            for due, key in leaving:
                if due == turn and key in open_keys:
                    self.scheduler.cancel(key)
                    self.cancelled.add(key)
                    open_keys.remove(key)
            self._turn(in_flight, answers)
            open_keys -= {key for key in open_keys if answers[key].finish is not Finish.NOT_FINISHED}
            turn += 1
        while in_flight:
            self._take(in_flight.popleft(), answers)
        return [answers[one.new.key] for one in arrivals]

    def _turn(self, in_flight: deque[Pending], answers: dict[int, Answer]) -> None:
        """Steps are issued and one result is taken; at times the host is late, and nothing is issued before."""
        if not in_flight or self._rng.random() < 0.9:
            self._fill(in_flight)
        if not in_flight and (step := self.scheduler.heartbeat()) is not None:
            in_flight.append(self._issue(step))
        self._take(in_flight.popleft(), answers)

    def _take(self, pending: Pending, answers: dict[int, Answer]) -> None:
        for output in self._settle(pending):
            if output.key in self.cancelled:
                raise AssertionError(f"request {output.key} was cancelled, and has an output")
            answers[output.key].take(output)

    def _give(self, step: Step) -> Pending:
        self._forwards.append(step.forward)
        return super()._give(step)

    def _settle(self, pending: Pending) -> list[Output]:
        self._uneven.spend(self._forwards.popleft())
        return super()._settle(pending)
