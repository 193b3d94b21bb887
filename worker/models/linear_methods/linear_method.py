"""What a linear method is, and what a layer computes with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from octavo.worker.models.config.tensor_specs import LinearShape, Part, TensorSpec

if TYPE_CHECKING:  # processes that never compute read the tensors' names here
    import torch

    from octavo.kernels.backend import Backend


class Linear(Protocol):
    """A loaded linear layer of a rank, W and perhaps a bias. x: [t, in] in the model's dtype."""

    def linear(self, x: "torch.Tensor") -> "torch.Tensor":
        """x W^T + bias: [t, out]."""

    def linear_add(self, x: "torch.Tensor", residual: "torch.Tensor") -> None:
        """residual [t, out] += x W^T + bias, in place."""

    def norm_linear(self, x: "torch.Tensor", norm: "torch.Tensor", eps: float) -> "torch.Tensor":
        """rms_norm(x) W^T + bias."""

    def norm_linear_silu_mul(self, x: "torch.Tensor", norm: "torch.Tensor", eps: float) -> "torch.Tensor":
        """silu(gate) * up of [gate, up] = rms_norm(x) W^T: [t, out / 2]."""

    def linear_silu_mul(self, x: "torch.Tensor") -> "torch.Tensor":
        """The same of x as it is."""


class LinearMethod(Protocol):
    """It owns the parameters of a linear layer, their splits over ranks, and the choice of the product."""

    def tensors(self, part: Part, shape: LinearShape) -> Mapping[str, TensorSpec]:
        """Of one part, by what follows `NAME.` in the checkpoint. The same names for all parts."""

    def load(self, tensors: "Mapping[str, torch.Tensor]", kernels: "Backend") -> Linear:
        """tensors: this rank's, by the same names, of all parts one after another (along the first dimension), in the
        model's dtype; tensors that another rank has alone are left out. On a GPU their values are still on the way
        (kernels/cuda/upload.py), so only products may read them."""
