"""Products of a medium batch with a large weight, at the speed of its memory, with what follows inside.

x: [t, in], rows may lie apart; weight: [out, in] row-major, as cuBLAS takes it; bf16 or f16; `in` and `out` multiples
of 8.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from octavo.kernels.cuda.library import DTYPES, INT, LONG, POINTER, function

STORE, ADD, SILU_MUL = 0, 1, 2
MAX_ROWS = 1024
MAX_SPLIT = 4  # CTAs of a cluster: larger ones find no room on all processors at once


class GemmPlan(NamedTuple):
    """A CTA takes `rows` of the weight and `tokens` of x at a time; `split` CTAs share the sums of such a tile.

    slots: CTAs that fit an SM: with two, the next product fills its ring while this one still runs, at once if `early`.
    ctas: at most so many, each with several tiles, where split is 1; 0: as many as there are SMs.
    """

    rows: int
    tokens: int
    split: int
    slots: int = 1
    early: int = 0
    ctas: int = 0


def is_fastest(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Is this library faster than cuBLAS, and can it take the operands?

    As measured with the weights of Llama 3 8B and 1B, on an H100 at 24 to 128 tokens and on an H200 at 64 to 256: up to
    64 it is (80 to 97 % of 3.0 TB/s at 8B, 55 to 99 % at 1B, whose small weights are over before memory is busy); up to
    128 for wide (half of 8B's gate and up too: 34 us, and 35.5) and for long weights, but not for the widest, which are
    heads. At 192 and 256 cuBLAS cuts its tiles to fit the processors better: gate and up of 8B take 81 and 97 us with
    the activation, and ours with it inside 105 and 118.
    """
    (tokens, k), rows = x.shape, weight.shape[0]
    if weight.dtype not in (torch.bfloat16, torch.float16) or k % 8 or rows % 16 or k * rows < 1 << 22:
        return False
    wide, long = 14336 <= rows <= 65536, k >= 8192
    return tokens <= 64 or (tokens <= 128 and (wide or long))


def plan(tokens: int, rows: int, k: int, processors: int) -> GemmPlan:
    """rows: of the weight. Tiles of 128 rows; a sum is split over a cluster while all clusters find room at once."""
    width = next((width for width in (32, 64) if tokens <= width), 128)
    tiles = -(-rows // 128) * -(-tokens // width)
    split = max(1, min(MAX_SPLIT, processors * 5 // 6 // tiles, -(-k // 64)))
    return GemmPlan(128, width, split)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x W^T + bias: [t, out]."""
    out = x.new_empty((x.shape[0], weight.shape[0]))
    return _product(x, weight, bias, out, STORE)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """residual [t, out] += x W^T + bias, rounded once."""
    if residual.shape != (x.shape[0], weight.shape[0]) or residual.dtype != x.dtype or residual.stride(1) != 1:
        raise ValueError("residual: not [t, out] in the dtype of x with adjacent columns")
    if residual.stride(0) % 2 or residual.data_ptr() % 4:
        raise ValueError("residual: rows must begin at multiples of 4 bytes")
    _product(x, weight, bias, residual, ADD)


def linear_silu_mul(x: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [gate, up] = x W^T: [t, out / 2]; `out` a multiple of 16."""
    out = x.new_empty((x.shape[0], gate_up.shape[0] // 2))
    return _product(x, gate_up, None, out, SILU_MUL)


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    mode: int,
    chosen: GemmPlan | None = None,
) -> torch.Tensor:
    (tokens, k), n = x.shape, out.shape[1]
    _check("x", x, k, weight.dtype)
    _check("weight", weight, k, x.dtype)
    if n % 8 or weight.shape[0] != (2 * n if mode == SILU_MUL else n):
        raise ValueError(f"weight: {weight.shape[0]} rows; each result must have a multiple of 8")
    if bias is not None and (bias.shape != (n,) or bias.dtype != x.dtype or not bias.is_contiguous()):
        raise ValueError(f"bias: not [{n}] {x.dtype}, contiguous")
    if not 1 <= tokens <= MAX_ROWS:
        raise ValueError(f"x: {tokens} rows; 1 to {MAX_ROWS} are served")
    processors = _processors(x.device.index or 0)
    p = plan(tokens, weight.shape[0], k, processors) if chosen is None else chosen
    _gemm()(
        DTYPES[x.dtype],
        x.data_ptr(),
        x.stride(0),
        tokens,
        weight.data_ptr(),
        weight.stride(0),
        n,
        k,
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        out.stride(0),
        mode,
        *p[:-1],
        p.ctas or processors,
    )
    return out


def _check(name: str, matrix: torch.Tensor, k: int, dtype: torch.dtype) -> None:
    if matrix.dtype not in (torch.bfloat16, torch.float16) or matrix.dtype != dtype:
        raise ValueError(f"{name}: {matrix.dtype}; x and weight must both be bfloat16 or both float16")
    if matrix.shape[1] != k or k % 8:
        raise ValueError(f"{name}: {matrix.shape[1]} columns; must be the same multiple of 8 in x and weight")
    if matrix.stride(1) != 1 or matrix.stride(0) % 8 or matrix.data_ptr() % 16:
        raise ValueError(f"{name}: rows must begin at multiples of 16 bytes, columns be adjacent")


@cache
def _gemm() -> Callable[..., None]:
    pointers = (INT, POINTER, LONG, INT, POINTER, LONG, INT, INT, POINTER, POINTER, LONG)
    return function("gemm", "octavo_gemm", *pointers, *[INT] * 7)


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
