"""RMSNorm, silu(gate) * up and embeddings on the device: csrc/elementwise.cu. Same meaning as in reference.py.

Widths are multiples of 8 (float32: 4); rows may lie apart.
"""

from collections.abc import Callable
from functools import cache

import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32, wants_like, wants_vectors
from octavo.kernels.cuda.library import FLOAT, INT, LONG, POINTER, function


@cache
def _rms_norm() -> Callable[..., None]:
    return function("elementwise", "octavo_rms_norm", POINTER, LONG, POINTER, POINTER, INT, INT, FLOAT, INT)


@cache
def _silu_mul() -> Callable[..., None]:
    return function("elementwise", "octavo_silu_mul", POINTER, LONG, POINTER, INT, INT, INT)


@cache
def _embed() -> Callable[..., None]:
    return function("elementwise", "octavo_embed", POINTER, POINTER, POINTER, *[INT] * 5)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x: [t, H], rows apart or not; weight: [H]. Normalised in float32, rounded, times weight: [t, H] contiguous."""
    rows, width = x.shape
    code = dtype_code("x", x)
    wants_vectors("x", x, width)
    wants_like("weight", weight, x, width)
    wants_vectors("weight", weight, width)
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    if rows:
        _rms_norm()(x.data_ptr(), x.stride(0), weight.data_ptr(), out.data_ptr(), rows, width, eps, code)
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu of the first half times the second. gate_up: [t, 2 * wide], rows apart or not; float32 within: [t, wide]."""
    rows, wide = gate_up.shape[0], gate_up.shape[1] // 2
    code = dtype_code("gate_up", gate_up)
    wants_vectors("gate_up", gate_up, wide)
    out = torch.empty((rows, wide), dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        _silu_mul()(gate_up.data_ptr(), gate_up.stride(0), out.data_ptr(), rows, wide, code)
    return out


def embed(ids: torch.Tensor, table: torch.Tensor, first: int | None = None) -> torch.Tensor:
    """ids: [t] int32; table: [V, H], of ids from `first` on. Its rows; zeros for an id that it does not have. [t, H]"""
    (rows,), (vocabulary, width) = ids.shape, table.shape
    code = dtype_code("table", table)
    wants_int32("ids", ids, rows)
    wants_like("table", table, table, vocabulary, width)
    wants_vectors("table", table, width)
    out = torch.empty((rows, width), dtype=table.dtype, device=table.device)
    if rows:
        _embed()(ids.data_ptr(), table.data_ptr(), out.data_ptr(), rows, first or 0, vocabulary, width, code)
    return out
