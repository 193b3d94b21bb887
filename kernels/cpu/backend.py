"""The CPU backend: our own kernels (native_ops.py) where they are built and the model is in float32, else PyTorch's."""

import logging
from functools import cache
from typing import Any, cast

import torch

from octavo.kernels.backend import Backend, HeadNorms
from octavo.kernels.cpu import native_ops as native
from octavo.kernels.cpu import torch_ops
from octavo.kernels.cpu.torch_ops import Rotary, embed, rotary, rotary_at
from octavo.kernels.paged import Paged, windowed

__all__ = ["embed", "rotary", "rotary_at", "windowed"]

logger = logging.getLogger(__name__)


@cache
def _built() -> bool:
    try:
        native.library()
    except OSError as error:
        logger.warning(
            "the CPU kernels are not built, so PyTorch's are used, at half the speed: install g++ and run "
            "`python -m octavo.kernels.build cpu` (%s)",
            error,
        )
        return False
    return True


def _kernels(dtype: torch.dtype) -> Backend:
    return cast(Backend, native if dtype == torch.float32 and _built() else torch_ops)


def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """Of native_ops or torch_ops, by the dtype; the products below are given it back."""
    return _kernels(weight.dtype).matrix(weight, bias)


def linear(x: torch.Tensor, matrix: Any) -> torch.Tensor:
    return _kernels(x.dtype).linear(x, matrix)


def linear_add(x: torch.Tensor, matrix: Any, residual: torch.Tensor) -> None:
    _kernels(x.dtype).linear_add(x, matrix, residual)


def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Any) -> torch.Tensor:
    return _kernels(x.dtype).norm_linear(x, norm, eps, matrix)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Any) -> torch.Tensor:
    return _kernels(x.dtype).norm_linear_silu_mul(x, norm, eps, matrix)


def linear_silu_mul(x: torch.Tensor, matrix: Any) -> torch.Tensor:
    return _kernels(x.dtype).linear_silu_mul(x, matrix)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return _kernels(x.dtype).rms_norm(x, weight, eps)


def rope_and_write(
    qkv: torch.Tensor, rotary: Rotary, pool: torch.Tensor, paged: Paged, norms: HeadNorms | None
) -> torch.Tensor:
    return _kernels(qkv.dtype).rope_and_write(qkv, rotary, pool, paged, norms)


def attention(q: torch.Tensor, pool: torch.Tensor, paged: Paged) -> torch.Tensor:
    return _kernels(q.dtype).attention(q, pool, paged)
