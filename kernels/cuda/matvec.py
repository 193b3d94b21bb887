"""Products of a few rows with a large weight, at the speed of its memory, norm before and sum after included.

x: [t, in], rows may lie apart; weight: [out, in] row-major, as cuBLAS takes it; bf16 or f16, `in` a multiple of 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from octavo.kernels.cuda.library import DTYPES, FLOAT, INT, LONG, POINTER, function

STORE, ADD, SILU_MUL = 0, 1, 2
MAX_ROWS = 64
# Shared memory of a CTA beside which another of the same size fits, and of one alone.
PAIR_BYTES, ALONE_BYTES = 113 * 1024, 227 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """How a product is cut; see matvec.cu. chunk: elements of k a warp fetches at once; split: CTAs of a cluster."""

    chunk: int
    warps: int
    split: int
    depth: int
    ahead: int
    late: int = 1
    carve: int = 1
    upcoming: tuple[int, int, int] = (0, 0, 0)


def wins(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Is this library the faster one, and can it take the operands?"""
    return x.shape[0] <= 8 and weight.dtype in (torch.bfloat16, torch.float16) and weight.shape[1] % 8 == 0


def plan(rows: int, n: int, k: int) -> Plan:
    chunk, warps = 256, 8
    chunks = -(-k // chunk)
    for split in (8, 4, 2, 1):
        own = -(-chunks // split)
        x_bytes = rows * (own * chunk + 32) * 2
        if (split - 1) * own < chunks and (
            split == 1 or rows * (-(-chunks // (split // 2)) * chunk + 32) * 2 > PAIR_BYTES * 3 // 8
        ):
            break
    sums = 4 * rows * (2 * warps * 20 + (2 * split * 16 if split > 1 else 0) + split * warps) + 64
    slots = warps * (32 * chunk + 128 + 8)
    depth = (ALONE_BYTES - x_bytes - sums) // slots
    return Plan(chunk, warps, split, min(depth, 3), 0)


def norm_linear(
    x: torch.Tensor, norm: torch.Tensor | None, eps: float, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """rms_norm(x) W^T + bias: [t, out]; without a norm, x as it is."""
    out = x.new_empty((x.shape[0], weight.shape[0]))
    return _product(x, norm, eps, weight, bias, out, STORE)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor | None, eps: float, weight: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [gate, up] = rms_norm(x) W^T: [t, out / 2]."""
    out = x.new_empty((x.shape[0], weight.shape[0] // 2))
    return _product(x, norm, eps, weight, None, out, SILU_MUL)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """residual [t, out] += x W^T + bias, rounded once."""
    if residual.shape != (x.shape[0], weight.shape[0]) or residual.dtype != x.dtype or residual.stride(1) != 1:
        raise ValueError("residual: not [t, out] in the dtype of x with adjacent columns")
    _product(x, None, 0.0, weight, bias, residual, ADD)


def _product(
    x: torch.Tensor,
    norm: torch.Tensor | None,
    eps: float,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    mode: int,
    chosen: Plan | None = None,
) -> torch.Tensor:
    (rows, k), n = x.shape, out.shape[1]
    _check("x", x, k, weight.dtype)
    _check("weight", weight, k, x.dtype)
    for name, vector, size in (("norm", norm, k), ("bias", bias, n)):
        if vector is not None and (vector.shape != (size,) or vector.dtype != x.dtype or not vector.is_contiguous()):
            raise ValueError(f"{name}: not [{size}] {x.dtype}, contiguous")
    if not 1 <= rows <= MAX_ROWS:
        raise ValueError(f"x: {rows} rows; 1 to {MAX_ROWS} are served")
    p = plan(rows, n, k) if chosen is None else chosen
    _matvec()(
        DTYPES[x.dtype],
        x.data_ptr(),
        x.stride(0),
        rows,
        None if norm is None else norm.data_ptr(),
        eps,
        weight.data_ptr(),
        weight.stride(0),
        n,
        k,
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        out.stride(0),
        mode,
        p.chunk,
        p.warps,
        p.split,
        p.depth,
        p.ahead,
        p.late,
        p.carve,
        _processors(x.device.index or 0),
        *p.upcoming,
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
    pointers = (INT, POINTER, LONG, INT, POINTER, FLOAT, POINTER, LONG, INT, INT, POINTER, POINTER, LONG, INT)
    return function("matvec", "octavo_matvec", *pointers, *[INT] * 8, POINTER, POINTER, INT)


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
