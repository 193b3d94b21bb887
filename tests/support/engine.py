"""Scheduler and runner in one process: an engine without rings and sockets, for exactness and speed."""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.hashing import block_hashes
from octavo.worker.request import Finish, NewRequest, Sampling
from octavo.worker.runner import Runner
from octavo.worker.scheduler import Limits, Scheduler
from octavo.worker.step import Step

GREEDY = Sampling()


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    finish: Finish = Finish.NOT_FINISHED
    cached: int = 0


class LocalEngine:
    """Keeps two steps under way, as the core does: a step is issued before the one before it has run."""

    def __init__(
        self, runner: Runner, *, blocks: int = 0, max_batch_tokens: int = 2048, max_requests: int = 64
    ) -> None:
        self._runner = runner
        limits = Limits(
            blocks=blocks or runner.blocks,
            block_size=16,
            max_batch_tokens=max_batch_tokens,
            max_requests=max_requests,
            context_length=runner.context_length,
            depth=2,
        )
        self.scheduler = Scheduler(limits)
        self._keys = 0
        self.largest_batch = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        sampling: Sequence[Sampling] | Sampling = GREEDY,
        stop_ids: Sequence[int] = (),
    ) -> list[Answer]:
        """Run all prompts together to their ends."""
        answers: dict[int, Answer] = {}
        for index, prompt in enumerate(prompts):
            self._keys += 1
            answers[self._keys] = Answer()
            how = sampling if isinstance(sampling, Sampling) else sampling[index]
            hashes = tuple(block_hashes(array("I", prompt).tobytes()))
            new = NewRequest(self._keys, tuple(prompt), how, max_tokens, frozenset(stop_ids), hashes=hashes)
            self.scheduler.submit(new)
        self._drive(answers)
        return list(answers.values())

    def _drive(self, answers: dict[int, Answer]) -> None:
        under_way: deque[Step] = deque()
        while any(answer.finish is Finish.NOT_FINISHED for answer in answers.values()):
            while (step := self.scheduler.schedule()) is not None:
                under_way.append(step)
            step = under_way.popleft()
            self.largest_batch = max(self.largest_batch, len(step.forward.slots))
            for output in self.scheduler.update(self._runner.run(step)):
                answer = answers[output.key]
                answer.ids += output.ids
                answer.finish = output.finish
                answer.cached += output.cached
        for step in under_way:  # issued before the last stop was seen
            self.scheduler.update(self._runner.run(step))
