"""The backend for NVIDIA GPUs: small and medium batches stream the weights through our own products, large ones use
cuBLAS, but for the activation of a large one, which has a product of its own.

See backend.py for the functions.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F

from octavo.kernels.backend import HeadNorms
from octavo.kernels.cuda.attention.decode import decode_attention
from octavo.kernels.cuda.attention.paged import DevicePaged
from octavo.kernels.cuda.attention.prefill import prefill_attention
from octavo.kernels.cuda.attention.rope import rope_and_write as _rope_and_write
from octavo.kernels.cuda.elementwise import embed, rms_norm, silu_mul
from octavo.kernels.cuda.gemm import gemm, gemm_large, matvec

__all__ = [
    "attention", "embed", "linear", "linear_add", "linear_silu_mul", "matrix", "norm_linear", "norm_linear_silu_mul",
    "rms_norm", "rope_and_write", "rotary", "rotary_at", "windowed",
]  # fmt: skip


class Matrix(NamedTuple):
    """weight: [out, in] row-major, which both kinds of product read."""

    weight: torch.Tensor
    bias: torch.Tensor | None


class Rotary(NamedTuple):
    """cos, sin: [context, d / 2] float32; positions: [t], None before `rotary_at`."""

    cos: torch.Tensor
    sin: torch.Tensor
    positions: torch.Tensor | None


def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Matrix:
    return Matrix(weight, bias)


def linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    if matvec.is_fastest(x, matrix.weight):
        return matvec.norm_linear(x, None, 0.0, matrix.weight, matrix.bias)
    return _linear(x, matrix)


def _linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    if gemm.is_fastest(x, matrix.weight):
        return gemm.linear(x, matrix.weight, matrix.bias)
    return F.linear(x, matrix.weight, matrix.bias)


def linear_add(x: torch.Tensor, matrix: Matrix, residual: torch.Tensor) -> None:
    if matrix.bias is None and matvec.is_fastest(x, matrix.weight):
        matvec.linear_add(x, matrix.weight, residual)
        return
    if gemm.is_fastest(x, matrix.weight):
        gemm.linear_add(x, matrix.weight, residual, matrix.bias)
        return
    if matrix.bias is not None:
        residual += matrix.bias
    torch.addmm(residual, x, matrix.weight.t(), out=residual)


def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    if matvec.is_fastest(x, matrix.weight):
        return matvec.norm_linear(x, norm, eps, matrix.weight, matrix.bias)
    return _linear(rms_norm(x, norm, eps), matrix)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    if matrix.bias is None and matvec.is_fastest(x, matrix.weight):
        return matvec.norm_linear_silu_mul(x, norm, eps, matrix.weight)
    normed = rms_norm(x, norm, eps)
    if matrix.bias is None and gemm_large.is_fastest(normed, matrix.weight):
        return gemm_large.linear_silu_mul(normed, matrix.weight)
    return _linear_silu_mul(normed, matrix)


def linear_silu_mul(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    if matrix.bias is None and matvec.is_fastest(x, matrix.weight):
        return matvec.norm_linear_silu_mul(x, None, 0.0, matrix.weight)
    return _linear_silu_mul(x, matrix)


def _linear_silu_mul(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    if matrix.bias is None and gemm.is_fastest(x, matrix.weight):
        return gemm.linear_silu_mul(x, matrix.weight)
    return silu_mul(F.linear(x, matrix.weight, matrix.bias))


def rotary(frequencies: torch.Tensor, context: int, dtype: torch.dtype, device: torch.device) -> Rotary:
    angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies).to(device)
    return Rotary(angles.cos(), angles.sin(), None)


def rotary_at(rotary: Rotary, positions: torch.Tensor) -> Rotary:
    return rotary._replace(positions=positions)


def rope_and_write(
    qkv: torch.Tensor, rotary: Rotary, pool: torch.Tensor, paged: DevicePaged, norms: HeadNorms | None
) -> torch.Tensor:
    assert rotary.positions is not None, "rotary_at comes first"
    q_norm, k_norm, eps = (None, None, 0.0) if norms is None else (norms.q, norms.k, norms.eps)
    return _rope_and_write(qkv, rotary.cos, rotary.sin, rotary.positions, paged.step.places, pool, q_norm, k_norm, eps)


def windowed(paged: DevicePaged, window: int, pool: torch.Tensor) -> DevicePaged:
    """window: one that the step was divided for."""
    return replace(paged, window=window)


def attention(q: torch.Tensor, pool: torch.Tensor, paged: DevicePaged) -> torch.Tensor:
    """Rows of one token, then the others; each kernel writes its own tokens."""
    step, partition = paged.step, paged.partitions[paged.window]
    out = q.new_empty((q.shape[0], q.shape[1] * q.shape[2]))
    decode_attention(q, pool, paged.tables, step.row_slots, step.lengths, step.header, partition.decode, out)
    if partition.tiles is not None:
        prefill_attention(q, pool, paged.tables, partition.tiles, out)
    return out
