"""Weights in the model's dtype. The product is the backend's (kernels/*/backend.py), which selects the fastest for the
rows at hand: on CPUs our own kernels or PyTorch's, on GPUs matvec, gemm or cuBLAS."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from octavo.worker.models.config.tensor_specs import LinearShape, Part, Split, TensorSpec

if TYPE_CHECKING:
    import torch

    from octavo.kernels.backend import Backend


class UnquantizedLinear:
    __slots__ = ("_kernels", "_matrix")

    def __init__(self, weight: "torch.Tensor", bias: "torch.Tensor | None", kernels: "Backend") -> None:
        """weight: [out, in], bias: [out]."""
        self._kernels, self._matrix = kernels, kernels.matrix(weight, bias)

    def linear(self, x: "torch.Tensor") -> "torch.Tensor":
        return self._kernels.linear(x, self._matrix)

    def linear_add(self, x: "torch.Tensor", residual: "torch.Tensor") -> None:
        self._kernels.linear_add(x, self._matrix, residual)

    def norm_linear(self, x: "torch.Tensor", norm: "torch.Tensor", eps: float) -> "torch.Tensor":
        return self._kernels.norm_linear(x, norm, eps, self._matrix)

    def norm_linear_silu_mul(self, x: "torch.Tensor", norm: "torch.Tensor", eps: float) -> "torch.Tensor":
        return self._kernels.norm_linear_silu_mul(x, norm, eps, self._matrix)

    def linear_silu_mul(self, x: "torch.Tensor") -> "torch.Tensor":
        return self._kernels.linear_silu_mul(x, self._matrix)


class Unquantized:
    """The weight [out, in], and perhaps a bias [out], which is split as the rows are."""

    def tensors(self, part: Part, shape: LinearShape) -> Mapping[str, TensorSpec]:
        specs = {"weight": TensorSpec((part.outputs, shape.inputs), part.split)}
        if shape.bias:
            split = Split.FIRST_RANK if part.split is Split.COLUMNS else part.split
            specs["bias"] = TensorSpec((part.outputs,), split)
        return specs

    def load(self, tensors: "Mapping[str, torch.Tensor]", kernels: "Backend") -> UnquantizedLinear:
        return UnquantizedLinear(tensors["weight"], tensors.get("bias"), kernels)
