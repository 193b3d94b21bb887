"""What the ranks of one stage do together: sums, and of ranks on CPUs small gathers. A rank alone does nothing.

Every rank calls the same functions in the same order. A call whose peers are gone raises PeerLost.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

from octavo.proto.v1 import group_pb2
from octavo.worker.messages.step import LOCAL


class Collective(Protocol):
    """rank: of `size`, within the stage. transport: how they reach each other."""

    rank: int
    size: int
    transport: "group_pb2.Transport.ValueType"

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        """x becomes the sum over the ranks, in place and the same to the bit on each; returned. x is contiguous."""

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        """residual += the sum of x over the ranks, the same to the bit on each; x is any then. Both are contiguous."""


class Gathering(Collective, Protocol):
    """The collective of ranks on CPUs; ranks on GPUs meet by theirs, and then add up by another."""

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """[size, *x.shape]: the x of all ranks, in their order. For small tensors."""


@runtime_checkable
class Norming(Protocol):
    """What a collective can do beside that knows a way to normalise rows while it adds them up."""

    def add_sum_norm_(
        self, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor | None:
        """As add_sum_, and then rms_norm of residual [t, H] with weight [H], a new tensor; None where another does that
        as well."""


@runtime_checkable
class Overlapping(Protocol):
    """What a collective can do beside that adds up while its device computes other things."""

    def overlaps(self, x: torch.Tensor) -> bool:
        """Whether sums of [t, H] such as x are worth it, in two halves of its rows."""

    def begin_sum(self, x: torch.Tensor) -> Callable[[], None]:
        """x becomes the sum over the ranks, in place and the same to the bit on each, once what is returned has been
        called; no kernel may read or write it until then. x is contiguous."""


def path_of(collective: Collective) -> str:
    """The name of a collective's path, as steps have it."""
    transport = group_pb2.Transport.Name(collective.transport).lower()
    return transport if collective.transport else LOCAL


class Alone:
    """The collective of a stage with one rank."""

    rank, size = 0, 1
    transport = group_pb2.TRANSPORT_UNSPECIFIED

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return x[None]


ALONE = Alone()
