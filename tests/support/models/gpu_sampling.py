"""What a rank on a GPU answers when no call of a step may wait for the device; every rank has all answers."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from support.worker.engine import Answer
from support.worker.masking import Masking

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.messages.step import Step
from octavo.worker.runner.base import Pending, RunnerConfig
from octavo.worker.runner.cuda.runner import CudaRunner
from octavo.worker.topology import Layout, RankPosition


class Unwaiting(Masking):
    """A call that waits for the device raises, once `strict`: what is first made or loaded may wait."""

    strict = False

    def _give(self, step: Step) -> Pending:
        torch.cuda.set_sync_debug_mode("error" if self.strict else "default")
        try:
            return super()._give(step)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def answers(
    runner: CudaRunner, prompts: Sequence[Sequence[int]], tokens: int, samplings: Sequence[SamplingParams]
) -> list[Answer]:
    """The same twice, the second time in graphs and without a call that waits. Each look at the clock finds it a
    millisecond later, so that all ranks schedule the same."""
    engine = Unwaiting(runner, clock=partial(next, count(step=1_000_000)))
    engine.generate(prompts, tokens, samplings)
    engine.capture()
    engine.forget()
    engine.strict = True
    return engine.generate(prompts, tokens, samplings)


def of_rank(gloo: Gloo, folder: Path, settings: dict[str, Any], *work: Any) -> list[Answer]:
    """As answers, of a rank of a group. work: prompts, tokens and samplings."""
    position = RankPosition(Layout(gloo.size, 1, gloo.size), gloo.rank)
    runner = CudaRunner(RunnerConfig(folder, device="cuda", position=position, **settings), collective=gloo)
    return answers(runner, *work)
