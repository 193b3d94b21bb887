"""The kernels that a model is written in, and the choice of the backend that provides them.

`reference` is the oracle, in the plainest PyTorch; `cpu` is vectorised; `cuda` is for NVIDIA GPUs. A layer is written
around its residual stream: norms are part of the product that follows them, additions of the one before, so that a
backend may fuse them.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import torch

BACKENDS = ("reference", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMSNorm over the head dimension, before rotation (Qwen3). q, k: [d]."""

    q: torch.Tensor
    k: torch.Tensor
    eps: float


class Backend(Protocol):
    """Modules of functions. x: [t, in] in the model's dtype.

    A `matrix`, a `rotary` and a `paged` are each backend's own: what it makes of a weight, of the rotary tables, and of
    a step's rows.
    """

    @staticmethod
    def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
        """weight: [out, in], bias: [out], in whatever layout is fastest."""

    @staticmethod
    def linear(x: torch.Tensor, matrix: Any) -> torch.Tensor:
        """x W^T + bias: [t, out]."""

    @staticmethod
    def linear_add(x: torch.Tensor, matrix: Any, residual: torch.Tensor) -> None:
        """residual [t, out] += x W^T + bias, in place."""

    @staticmethod
    def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Any) -> torch.Tensor:
        """rms_norm(x) W^T + bias."""

    @staticmethod
    def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Any) -> torch.Tensor:
        """silu(gate) * up of [gate, up] = rms_norm(x) W^T: [t, out / 2]. Nothing else should run on the device.
        (Shazeer 2020)"""

    @staticmethod
    def linear_silu_mul(x: torch.Tensor, matrix: Any) -> torch.Tensor:
        """The same of x as it is; a device may compute something else meanwhile."""

    @staticmethod
    def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight. (Zhang and Sennrich 2019)"""

    @staticmethod
    def embed(ids: torch.Tensor, table: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """ids: [t]; table: [vocabulary, hidden], or part of it, from id `first` on: others give zeros. A new tensor: it
        becomes the residual stream."""

    @staticmethod
    def rotary(frequencies: torch.Tensor, context: int, dtype: torch.dtype, device: torch.device) -> Any:
        """The tables of all positions below `context`; frequencies: [d / 2]."""

    @staticmethod
    def rotary_at(rotary: Any, positions: torch.Tensor) -> Any:
        """What the layers of one step need of them. positions: [t]."""

    @staticmethod
    def rope_and_write(
        qkv: torch.Tensor, rotary: Any, pool: torch.Tensor, paged: Any, norms: HeadNorms | None
    ) -> torch.Tensor:
        """Rotate q and k of qkv [t, h + 2k, d], put k and v into the pool, return q [t, h, d].

        rotary: of `rotary_at`. (Su 2021, halves as in GPT-NeoX)
        """

    @staticmethod
    def windowed(paged: Any, window: int, pool: torch.Tensor) -> Any:
        """For the attention of layers with a sliding window: each token sees `window` of them, itself the last.

        Made once a step. pool: of any layer, for its shape and type.
        """

    @staticmethod
    def attention(q: torch.Tensor, pool: torch.Tensor, paged: Any) -> torch.Tensor:
        """Causal attention of q [t, h, d] over the paged pool; returns [t, h * d]. (Kwon 2023)"""


def choose(name: str) -> Backend:
    """One of BACKENDS; it is imported only then."""
    if name not in BACKENDS:
        raise ValueError(f"kernels: there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    module = "octavo.kernels.reference" if name == "reference" else f"octavo.kernels.{name}.backend"
    return cast(Backend, import_module(module))
