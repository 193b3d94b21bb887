"""How rows that were changed are drawn, and log-probabilities found: by kernels where a rank has all of the vocabulary,
and together, as ranks on CPUs do it, where several share it. That waits for the device, in such steps alone."""

from typing import Protocol

import torch

from octavo.kernels.cuda.sampling import logprobs as kernels
from octavo.kernels.cuda.sampling.logprobs import ASKED_WORDS
from octavo.kernels.cuda.sampling.sample import Samples, sample
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.worker.runner.cpu.logprobs import scores
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary
from octavo.worker.runner.cpu.sampler import sample as sample_exactly


class VocabSampler(Protocol):
    """first: id of this rank's first column."""

    first: int

    def sample(self, logits: torch.Tensor, draws: Samples, state: DeviceState, drawn: torch.Tensor) -> None:
        """Of rows of float32 logits; drawn [2 n] int32 becomes ids, then 1 where the logits were not finite. The ids
        are in the token pool then."""

    def logprobs(
        self, logits: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, top: int, results: torch.Tensor
    ) -> None:
        """As kernels/cuda/sampling/logprobs.py has it."""


class FullVocab:
    """For a rank that has the whole vocabulary."""

    first = 0

    def sample(self, logits: torch.Tensor, draws: Samples, state: DeviceState, drawn: torch.Tensor) -> None:
        sample(logits, draws, state, drawn)

    def logprobs(
        self, logits: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, top: int, results: torch.Tensor
    ) -> None:
        kernels.logprobs(logits, asked, tokens, top, results)


class ShardedVocab:
    """For ranks that share the vocabulary: all make the same calls, in the same order."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.first = vocabulary.first
        self._vocabulary = vocabulary

    def sample(self, logits: torch.Tensor, draws: Samples, state: DeviceState, drawn: torch.Tensor) -> None:
        slots, ends = draws.sample_slots.long(), draws.sample_ends.long()
        ids, finite = sample_exactly(logits, draw_of(state, slots, draws.counters), self._vocabulary)
        state.tokens[slots, ends] = ids.int()
        drawn.copy_(torch.cat((ids, ~finite)))

    def logprobs(
        self, logits: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, top: int, results: torch.Tensor
    ) -> None:
        rows, slots, positions = asked.view(-1, ASKED_WORDS)[:, :3].long().unbind(1)
        found = scores(logits[rows].float(), tokens[slots, positions].long(), top, self._vocabulary)
        first = torch.stack((found.finite.int(), found.ranks.int()), dim=1)
        results.copy_(torch.cat((first, found.ids.int(), found.values.view(torch.int32)), dim=1))


def draw_of(state: DeviceState, slots: torch.Tensor, counters: torch.Tensor) -> Draw:
    """The draw's parameters of the requests in these slots [n]; counters: [n] tokens that each has sampled."""
    return Draw(
        temperature=state.temperature[slots],
        top_k=state.top_k[slots].long(),
        top_p=state.top_p[slots],
        seeds=state.seeds[slots],
        counters=counters.long(),
        min_p=state.min_p[slots],
    )
