"""The end of a pass on the last stage: logits, and from them the next tokens.

Where ranks share the vocabulary each looks at its columns, and they exchange what each part of a row would draw: a few
bytes. That is exact for rows that are greedy or have a temperature alone. A row with filters needs sums over the ranks
before anything can be drawn; it is drawn again after the pass (`redraw`), by what the CPU's ranks use.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from octavo.kernels.cuda.sampling.sample import sample, sample_parts
from octavo.kernels.cuda.sampling.sample_split import join_samples
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.distributed.collective import Collective
from octavo.worker.models.decoder import Decoder
from octavo.worker.runner.cpu.sampler import Vocabulary
from octavo.worker.runner.cpu.sampler import sample as sample_exactly
from octavo.worker.runner.cuda.vocab_parallel import draw_of

_REDRAWN = 32  # rows at a time: a bound to memory


class ForwardOutput(NamedTuple):
    """Of a pass: on the last stage, of the sampled rows, ids, 1 where the logits were not finite ([rows] int32 each),
    and the logits [rows, columns] of this rank. hidden: states of all tokens [tokens, hidden], on other stages, and of
    passes that keep them."""

    ids: torch.Tensor | None = None
    failed: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


class Head:
    def __init__(self, model: Decoder, vocabulary: int, collective: Collective, logits: torch.Tensor) -> None:
        """vocabulary: of all ranks. collective: of the stage, for tensors of its devices. logits: [rows, columns] of
        the largest step, where a pass keeps its own; used only where ranks share the vocabulary."""
        self._model, self._vocabulary, self._collective = model, vocabulary, collective
        self._logits = logits

    def sample(self, hidden: torch.Tensor, step: StepBuffers, state: DeviceState) -> ForwardOutput:
        """hidden: [rows, hidden]. The ids are in the token pool then."""
        logits = self._model.logits(hidden)
        if self._collective.size == 1:
            return ForwardOutput(*sample(logits, step, state), logits)
        rows, columns = logits.shape
        kept = self._logits[:rows].copy_(logits)  # where no later kernel of the pass puts anything
        parts = sample_parts(logits, step, state, self._collective.rank * columns)
        return ForwardOutput(*join_samples(self._collective.gather(parts), columns, step, state), kept)

    @property
    def shared(self) -> Vocabulary:
        """As this rank sees it."""
        return Vocabulary(self._vocabulary, self._collective.rank * self._logits.shape[1], self._collective)

    def redraws(self, sampling: SamplingParams) -> bool:
        """Whether rows of such a request are to be drawn again."""
        filtered = 0 < sampling.top_k < self._vocabulary or sampling.top_p < 1 or sampling.min_p > 0
        return self._collective.size > 1 and sampling.temperature > 0 and filtered

    def redraw(self, ids: torch.Tensor, rows: Sequence[int], step: StepBuffers, state: DeviceState) -> None:
        """Draw these rows of the last pass as their filters say; ids: what it has drawn. Waits for the pass."""
        for first in range(0, len(rows), _REDRAWN):
            self._redraw(ids, rows[first : first + _REDRAWN], step, state)

    def _redraw(self, ids: torch.Tensor, rows: Sequence[int], step: StepBuffers, state: DeviceState) -> None:
        logits = self._logits
        places = torch.tensor(rows, device=logits.device)
        slots, ends = step.sample_slots[places].long(), step.sample_ends[places].long()
        draw = draw_of(state, slots, step.counters[places])
        found, _ = sample_exactly(logits[places].float(), draw, self.shared)
        ids[places] = found.int()
        state.tokens[slots, ends] = found.int()
