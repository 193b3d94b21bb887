"""Two implementations that a server's answers are compared with: our engine in this process, one request at a time,
and transformers in float32."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from support.models.oracle import Oracle
from support.worker.engine import GREEDY, LocalEngine

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner
from octavo.worker.scheduler.step_length import StepLength


class Reference:
    def __init__(self, folder: Path) -> None:
        self._engine = LocalEngine(
            Runner(RunnerConfig(folder, max_requests=4, kv_cache_bytes=32 << 20, threads=1)),
            step_length=StepLength(interval_s=1e6),
        )
        self._oracle = Oracle(folder)

    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        return self._alone(prompt, tokens, GREEDY)

    def drawn(
        self, prompt: Sequence[int], tokens: int, temperature: float, seed: int, way: dict[str, Any]
    ) -> list[int]:
        """way: further fields of a request, as the HTTP API names them."""
        return self._alone(prompt, tokens, SamplingParams(temperature, seed=seed, **way))

    def judged(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[list[float], list[float], list[int]]:
        """Of each token of the answer: its log-probability, by how much the likeliest exceeds the next, and which is
        the likeliest."""
        logits = self._oracle.logits([*prompt, *answer], last=len(answer) + 1)[:-1].log_softmax(-1)
        best = logits.topk(2)
        own = logits.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
        gaps = best.values[:, 0] - best.values[:, 1]
        return own.tolist(), gaps.tolist(), best.indices[:, 0].tolist()

    def next(self, ids: Sequence[int]) -> list[float]:
        """Log-probabilities of what comes after ids."""
        likely: list[float] = self._oracle.logits(ids, last=1)[-1].log_softmax(-1).tolist()
        return likely

    def _alone(self, prompt: Sequence[int], tokens: int, how: SamplingParams) -> list[int]:
        """The prefix of the prompt stays cached from one answer to the next, and goes with the next prompt."""
        return self._engine.generate([prompt], tokens, how)[0].ids
