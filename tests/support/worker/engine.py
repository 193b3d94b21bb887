"""Scheduler and runner in one process: an engine without rings and sockets, for exactness and speed."""

import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from octavo.shared.hashing import block_hashes
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.graphs import GraphBook, mixed_sizes
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step
from octavo.worker.runner.base import DeviceRunner, Pending
from octavo.worker.scheduler.scheduler import Limits, Scheduler
from octavo.worker.scheduler.step_deadline import StepDeadline
from octavo.worker.scheduler.step_length import StepLength, step_length_of
from octavo.worker.scheduler.step_time_model import StepTimeModel

GREEDY = SamplingParams()


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    finish: Finish = Finish.NOT_FINISHED
    cached: int = 0
    scores: bytes = b""
    prompt_scores: bytes = b""

    def take(self, output: Output) -> None:
        self.ids += output.ids
        self.finish = output.finish
        self.cached += output.cached
        if output.scores is not None:
            self.scores += output.scores.tokens
            self.prompt_scores += output.scores.prompt


class LocalEngine:
    """Keeps steps under way as the core does: one is issued before the results of earlier ones are here."""

    def __init__(
        self,
        runner: DeviceRunner,
        *,
        blocks: int = 0,
        max_batch_tokens: int = 0,
        max_requests: int = 0,
        step_length: StepLength | None = None,
        stages: int = 1,
        prefix_caching: bool = True,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """What is 0 is the runner's own. step_length: the device's, unless given. stages: of its pipeline. clock:
        nanoseconds, from which is learned what steps take."""
        self._runner = runner
        self._limits = Limits(
            blocks=blocks or runner.blocks,
            block_size=16,
            max_batch_tokens=max_batch_tokens or runner.max_batch_tokens,
            max_requests=max_requests or runner.max_requests,
            context_length=runner.context_length,
            depth=stages + 1,
            prefix_caching=prefix_caching,
            stages=stages,
        )
        self._clock = clock
        self._step_length = step_length or step_length_of(runner.device, stages)
        self._step_times = StepTimeModel(mixed_sizes(runner.graphs))
        self.forget()
        self._graphs = GraphBook(runner.graphs)
        self._step_deadline = StepDeadline()
        self._keys = 0
        self.largest_batch = 0
        self.steps = 0

    def forget(self) -> None:
        """Empty the prefix cache, as a new engine has it. Only when nothing runs."""
        self.scheduler = Scheduler(self._limits, self._step_length, self._step_times)

    def capture(self) -> None:
        """Every graph that the runner has; a server does it between steps that serve."""
        while not self._graphs.complete:
            step = self.scheduler.heartbeat()
            assert step is not None
            self._settle(self._issue(replace(step, graph=self._graphs.capture(step.number))))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        sampling: Sequence[SamplingParams] | SamplingParams = GREEDY,
        stop_ids: Sequence[int] = (),
    ) -> list[Answer]:
        """Run all prompts together to their ends."""
        return self.run(prompts, [max_tokens] * len(prompts), sampling, stop_ids)

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: Sequence[int],
        sampling: Sequence[SamplingParams] | SamplingParams = GREEDY,
        stop_ids: Sequence[int] = (),
    ) -> list[Answer]:
        """The same, each to a length of its own.

        The device begins as soon as it has enough for two steps; the other prompts are taken in meanwhile.
        """
        answers: dict[int, Answer] = {}
        in_flight: deque[Pending] = deque()
        queued = 0
        for index, prompt in enumerate(prompts):
            how = sampling if isinstance(sampling, SamplingParams) else sampling[index]
            answers[self._submit(prompt, max_tokens[index], how, stop_ids)] = Answer()
            queued += len(prompt)
            if not in_flight and queued >= 2 * self._limits.max_batch_tokens:
                self._fill(in_flight)
        self._drive(answers, in_flight)
        return list(answers.values())

    def answer(self, new: NewRequest) -> Answer:
        """Run one request to its end. Its key is its own."""
        self.scheduler.submit(new)
        answers = {new.key: Answer()}
        self._drive(answers, deque())
        return answers[new.key]

    def _submit(self, prompt: Sequence[int], max_tokens: int, how: SamplingParams, stop_ids: Sequence[int]) -> int:
        self._keys += 1
        hashes = tuple(block_hashes(array("I", prompt).tobytes()))
        new = NewRequest(self._keys, tuple(prompt), how, max_tokens, frozenset(stop_ids), hashes=hashes)
        self.scheduler.submit(new)
        return self._keys

    def _drive(self, answers: dict[int, Answer], in_flight: deque[Pending]) -> None:
        while any(answer.finish is Finish.NOT_FINISHED for answer in answers.values()):
            self._fill(in_flight)
            for output in self._settle(in_flight.popleft()):
                answers[output.key].take(output)
        for pending in in_flight:  # issued before the last stop was seen
            self._settle(pending)

    def _fill(self, in_flight: deque[Pending]) -> None:
        while (step := self.scheduler.schedule()) is not None:
            self.largest_batch = max(self.largest_batch, len(step.forward.slots))
            in_flight.append(self._issue(replace(step, graph=self._graphs.pick(step))))

    def _issue(self, step: Step) -> Pending:
        self._step_deadline.issued(self._clock(), 0.0)
        return self._give(step)

    def _give(self, step: Step) -> Pending:
        return self._runner.issue(step)

    def _settle(self, pending: Pending) -> list[Output]:
        result = pending.result()
        self.scheduler.observe(result.number, self._step_deadline.returned(self._clock()) / 1e9)
        self._graphs.returned(result.number)
        self.steps += 1
        return self.scheduler.update(result)
