"""The product of one row with a large weight, at the speed of its memory, norm before and sum after included.

x: [1, in]; weight: [out, in] row-major, as cuBLAS takes it; bf16 or f16, `in` a multiple of 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from octavo.kernels.cuda.library import DTYPES, FLOAT, INT, LONG, POINTER, function

STORE, ADD, SILU_MUL = 0, 1, 2
CHUNK, TILE, WARPS = 256, 16, 8  # elements of k a warp fetches at once; weight rows of a tile; of a CTA
SHARED_BYTES = 227 * 1024  # of an SM, which one CTA takes for itself: the deeper its ring, the steadier the stream
X_BYTES = 43_392  # of that, about what x may take


@dataclass(frozen=True, slots=True)
class MatvecPlan:
    """split: CTAs of a cluster, each with its part of k; depth: chunks that a warp has under way."""

    split: int
    depth: int


def is_fastest(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Is this library the fastest, and can it take the operands? From two rows on gemm.py is."""
    return x.shape[0] == 1 and weight.dtype in (torch.bfloat16, torch.float16) and weight.shape[1] % 8 == 0


def plan(k: int) -> MatvecPlan:
    """The fewest CTAs a cluster that leave room for the rings, and rings as deep as fit."""
    chunks = -(-k // CHUNK)

    def x_bytes(split: int) -> int:
        return (-(-chunks // split) * CHUNK + 32) * 2

    def useful(split: int) -> bool:
        """Has each CTA a part of k, and would fewer CTAs have too large an x?"""
        return (split - 1) * -(-chunks // split) < chunks and x_bytes(split // 2) > X_BYTES

    split = next((split for split in (8, 4, 2) if useful(split)), 1)
    gathered = 2 * split * TILE if split > 1 else 0
    sums = 4 * (2 * WARPS * (TILE + 4) + gathered + split * WARPS) + 64
    slots = WARPS * (2 * TILE * CHUNK + 128 + 8)
    return MatvecPlan(split, min((SHARED_BYTES - x_bytes(split) - sums) // slots, 3))


def norm_linear(
    x: torch.Tensor, norm: torch.Tensor | None, eps: float, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """rms_norm(x) W^T + bias: [1, out]; without a norm, x as it is."""
    out = x.new_empty((x.shape[0], weight.shape[0]))
    return _product(x, norm, eps, weight, bias, out, STORE)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor | None, eps: float, weight: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [gate, up] = rms_norm(x) W^T: [1, out / 2]."""
    out = x.new_empty((x.shape[0], weight.shape[0] // 2))
    return _product(x, norm, eps, weight, None, out, SILU_MUL)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """residual [1, out] += x W^T + bias, rounded once."""
    if residual.shape != (x.shape[0], weight.shape[0]) or residual.dtype != x.dtype or residual.stride(1) != 1:
        raise ValueError("residual: not [1, out] in the dtype of x with adjacent columns")
    _product(x, None, 0.0, weight, bias, residual, ADD)


def _product(
    x: torch.Tensor,
    norm: torch.Tensor | None,
    eps: float,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    mode: int,
) -> torch.Tensor:
    (rows, k), n = x.shape, out.shape[1]
    _check("x", x, k, weight.dtype)
    _check("weight", weight, k, x.dtype)
    for name, vector, size in (("norm", norm, k), ("bias", bias, n)):
        if vector is not None and (vector.shape != (size,) or vector.dtype != x.dtype or not vector.is_contiguous()):
            raise ValueError(f"{name}: not [{size}] {x.dtype}, contiguous")
    if rows != 1:
        raise ValueError(f"x: {rows} rows; one is served")
    chosen = plan(k)
    _matvec()(
        DTYPES[x.dtype],
        x.data_ptr(),
        None if norm is None else norm.data_ptr(),
        eps,
        weight.data_ptr(),
        weight.stride(0),
        n,
        k,
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        mode,
        WARPS,
        chosen.split,
        chosen.depth,
        _processors(x.device.index or 0),
    )
    return out


def _check(name: str, matrix: torch.Tensor, k: int, dtype: torch.dtype) -> None:
    if matrix.dtype not in (torch.bfloat16, torch.float16) or matrix.dtype != dtype:
        raise ValueError(f"{name}: {matrix.dtype}; x and weight must both be bfloat16 or both float16")
    if matrix.shape[1] != k or k % 8:
        raise ValueError(f"{name}: {matrix.shape[1]} columns; must be the same multiple of 8 in x and weight")
    if matrix.stride(1) != 1 or (matrix.shape[0] > 1 and matrix.stride(0) % 8) or matrix.data_ptr() % 16:
        raise ValueError(f"{name}: rows must begin at multiples of 16 bytes, columns be adjacent")


@cache
def _matvec() -> Callable[..., None]:
    pointers = (INT, POINTER, POINTER, FLOAT, POINTER, LONG, INT, INT, POINTER, POINTER, INT)
    return function("matvec", "octavo_matvec", *pointers, *[INT] * 4)


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
