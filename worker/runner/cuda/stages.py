"""What a rank of a pipeline on GPUs has to do with the other stages, in the order of its steps."""

import torch

from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.worker.distributed.links import Links
from octavo.worker.messages.step import Forward, Step
from octavo.worker.runner.cuda.links import Sizes, on_device
from octavo.worker.runner.pending_tokens import PendingTokens, most_pending
from octavo.worker.topology import RankPosition


class Stages:
    """arrived: [tokens, hidden] of the largest step, what the stage before has computed; None on the first."""

    def __init__(self, links: Links, position: RankPosition, rows: int, arrived: torch.Tensor) -> None:
        """rows: of the largest step."""
        self.links = on_device(links, position, Sizes(rows, arrived.numel() * arrived.element_size()))
        self.arrived = None if position.first else arrived
        self._pending = PendingTokens(most_pending(position.layout)) if position.first else None

    def settle(self, forward: Forward, state: DeviceState) -> None:
        """Before anything else of a step: sampled ids that it reads are in the token pool then."""
        if self._pending is not None:
            for pending in self._pending.due(forward):
                self.links.take_sampled(pending, state)

    def receive(self, step: Step) -> None:
        """Before the pass of a step with rows."""
        if self.arrived is not None:
            self.links.receive_hidden(step.number, self.arrived[: step.forward.tokens])

    def send_hidden(self, step: Step, hidden: torch.Tensor | None) -> None:
        """After it, but on the last stage."""
        assert hidden is not None, "a stage that does not sample ends with hidden states"
        self.links.send_hidden(step.number, hidden[: step.forward.tokens])
        if self._pending is not None:
            self._pending.expect(step)

    def send_sampled(self, step: Step, buffers: StepBuffers, ids: torch.Tensor) -> None:
        """On the last stage."""
        if step.sample.rows:
            self.links.send_sampled(step.number, buffers, ids, len(step.sample.rows))
