"""The end of a pass on the last stage: logits, and from them the next tokens.

Where ranks share the vocabulary, each has some columns of all rows. They exchange them, so that each has some rows
whole, and draws these (row_share.py).
"""

from typing import NamedTuple

import torch

from octavo.kernels.cuda.sampling.sample import sample
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.worker.models.decoder import Decoder
from octavo.worker.runner.cuda.row_share import RowShare


class ForwardOutput(NamedTuple):
    """Of a pass: on the last stage, of the sampled rows, ids, and 1 where the logits were not finite ([2, rows] int32),
    and the logits [own rows, vocabulary] that this rank draws from. hidden: states of all tokens [tokens, hidden],
    on other stages, and of passes that keep them."""

    drawn: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


class Head:
    def __init__(self, model: Decoder, row_share: RowShare) -> None:
        self._model, self._row_share = model, row_share

    def sample(self, hidden: torch.Tensor, step: StepBuffers, state: DeviceState) -> ForwardOutput:
        """hidden: [rows, hidden]. The ids are in the token pool then."""
        logits = self._row_share.own_rows(self._model.logits(hidden), step)
        drawn = sample(logits, step, state, own=self._row_share.own_samples)
        self._row_share.share(drawn, step, state)
        return ForwardOutput(drawn, logits)
