"""What passes between the stages of a pipeline, as a runner sees it; the transport is pipeline/'s.

    stage 0 --hidden--> stage 1 --hidden--> ... last stage --sampled--> stage 0

Each rank sends to the rank of the same index in the next stage, in the order of the steps.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from octavo.proto.v1 import group_pb2


@dataclass(frozen=True, slots=True)
class Sampled:
    """Of one step: as StepResult."""

    number: int
    ids: tuple[int, ...]


class Links(Protocol):
    """A call that waits is ended by ending the process: peers that are gone are not waited for by their time-outs.

    transport: how they reach each other."""

    transport: "group_pb2.Transport.ValueType"

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        """hidden: [tokens, hidden size], contiguous. It is read before the call returns."""

    def receive_hidden(self, step: int) -> torch.Tensor:
        """What the stage before sent for this step, the receiver's to write on; waits for it.

        Raises ValueError when another step's comes.
        """

    def send_sampled(self, sampled: Sampled) -> None:
        """From the last stage to the first; for every step that samples."""

    def receive_sampled(self) -> Sampled:
        """The next step's that samples, in order; waits for it."""
