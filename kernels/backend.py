"""The kernels that a model is written in, and the choice of who provides them.

`reference` is the oracle, in the plainest PyTorch; `cpu` is vectorised.
"""

from collections.abc import Callable
from typing import Protocol, cast

import torch

from octavo.kernels.paged import Paged

Linear = Callable[[torch.Tensor], torch.Tensor]  # [t, in] -> [t, out]


class Backend(Protocol):
    """Modules of functions. x: [t, hidden] in the model's dtype."""

    @staticmethod
    def linear(weight: torch.Tensor) -> Linear:
        """A product with `weight` [out, in], in whatever layout is fastest."""

    @staticmethod
    def embed(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """ids: [t]; table: [vocabulary, hidden]."""

    @staticmethod
    def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight. (Zhang and Sennrich 2019)"""

    @staticmethod
    def add_rms_norm(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(normed sum, sum) of x and residual; residual may be overwritten by the sum."""

    @staticmethod
    def rope_and_write(
        qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pool: torch.Tensor, write_index: torch.Tensor
    ) -> torch.Tensor:
        """Rotate q and k of qkv [t, h + 2k, d], put k and v into the pool, return q [t, h, d].

        cos, sin: [t, 1, d] as `rope_table` has them. (Su 2021, halves as in GPT-NeoX)
        """

    @staticmethod
    def attention(q: torch.Tensor, pool: torch.Tensor, paged: Paged) -> torch.Tensor:
        """Causal attention of q [t, h, d] over the paged pool; returns [t, h * d]. (Kwon 2023)"""

    @staticmethod
    def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of [t, 2 * wide]. (Shazeer 2020)"""


def choose(name: str) -> Backend:
    """The backend `reference` or `cpu`."""
    if name == "reference":
        from octavo.kernels import reference

        return cast(Backend, reference)
    if name == "cpu":
        from octavo.kernels import cpu

        return cast(Backend, cpu)
    raise ValueError(f"kernels: there is no backend {name!r}; there are reference and cpu")
