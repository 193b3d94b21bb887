"""silu(gate) * up of a large batch, in the product's own epilogue: csrc/gemm/gemm_large.cu.

x: [t, in], rows may lie apart; weight: [out, in] row-major, gate above up, as cuBLAS takes it; bf16 or f16; `in` and
half of `out` multiples of 8. All SMs take part, each with a fixed share of the tiles: what else runs on the device
meanwhile delays the whole, or waits for its end.
"""

from collections.abc import Callable
from functools import cache

import torch

from octavo.kernels.cuda.checks import wants_vectors
from octavo.kernels.cuda.library import DTYPES, INT, LONG, POINTER, function

_TILE = 256  # tokens, and rows of the weight, that two SMs take at a time
_WASTE = 1.1  # how many times the work the tiles may be, with the ones that are missing in the last round
_LEAST_TOKENS = 768
_NEAR_BYTES = 16 << 20  # of x, whose tiles are multiplied by one tile of the weight before the next: a part of the L2


def is_fastest(x: torch.Tensor, gate_up: torch.Tensor) -> bool:
    """Is this faster than cuBLAS with an activation after it, and can it take the operands?

    As measured with Llama 3 8B and 1B on an H200, at 768 to 8,192 tokens: 0 to 6 % (8B) and 3 to 13 % (1B). cuBLAS
    alone is up to 2 % faster than the product here, and cuts its tiles finer where few are left for the last round.
    """
    (tokens, k), rows = x.shape, gate_up.shape[0]
    if gate_up.dtype not in (torch.bfloat16, torch.float16) or k % 8 or rows % 16 or tokens < _LEAST_TOKENS:
        return False
    pairs = _processors(x.device.index or 0) // 2
    tiles = -(-tokens // _TILE) * -(-rows // _TILE)
    return -(-tiles // pairs) * pairs * _TILE * _TILE <= _WASTE * tokens * rows


def linear_silu_mul(x: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [gate, up] = x W^T: [t, out / 2]."""
    (tokens, k), n = x.shape, gate_up.shape[0] // 2
    if x.dtype not in (torch.bfloat16, torch.float16) or gate_up.dtype != x.dtype or gate_up.shape[1] != k:
        raise ValueError(f"gate_up: {tuple(gate_up.shape)} {gate_up.dtype}; x is {x.dtype} of {k}, in 16 bits both")
    if gate_up.shape[0] % 16:
        raise ValueError(f"gate_up: {gate_up.shape[0]} rows; gate and up must each have a multiple of 8")
    if not tokens:
        raise ValueError("x: no rows")
    wants_vectors("x", x, k)
    wants_vectors("gate_up", gate_up, k)
    out = x.new_empty((tokens, n))
    _silu_mul()(
        *(DTYPES[x.dtype], x.data_ptr(), x.stride(0), tokens, gate_up.data_ptr(), gate_up.stride(0), n, k),
        *(out.data_ptr(), n, max(1, _NEAR_BYTES // (2 * _TILE * k))),
    )
    return out


@cache
def _silu_mul() -> Callable[..., None]:
    sizes = (INT, POINTER, LONG, INT, POINTER, LONG, INT, INT, POINTER, LONG, INT)
    return function("gemm_large", "octavo_gemm_large_silu_mul", *sizes)


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
