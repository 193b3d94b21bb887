"""Rotary positions and the write of k and v into the paged pool, on the device: csrc/attention/rope.cu."""

from collections.abc import Callable
from functools import cache

import torch

from octavo.kernels.cuda.checks import VECTOR_BYTES, dtype_code, wants_int32, wants_like, wants_vectors
from octavo.kernels.cuda.library import FLOAT, INT, POINTER, function

BLOCK_TOKENS = 16


@cache
def _rope_and_write() -> Callable[..., None]:
    arguments = (*[POINTER] * 8, FLOAT, *[INT] * 6)
    return function("rope", "octavo_rope_and_write", *arguments)


def rope_and_write(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    places: torch.Tensor,
    pool: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
) -> torch.Tensor:
    """Rotate q in place and k into the pool, beside v; returns q, a view of qkv [t, h, d]. (Su 2021, as GPT-NeoX)

    first half * cos - second * sin, second * cos + first * sin, in float32, rounded once; norms come before.

    qkv: [t, h + 2k, d]; cos, sin: [context, d / 2] float32; positions, places: [t] int32, place = block * 16 + offset,
    -1: nowhere. pool: [2, k, blocks + 1, 16, d]. q_norm, k_norm: [d]. d: a multiple of 16 (float32: of 8), to 256.
    """
    tokens, total, dim = qkv.shape
    code = dtype_code("qkv", qkv)
    _check(qkv, cos, sin, pool)
    wants_int32("positions", positions, tokens)
    wants_int32("places", places, tokens)
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            wants_like(name, norm, qkv, dim)
            wants_vectors(name, norm, dim)
    kv_heads, blocks = pool.shape[1:3]
    heads = total - 2 * kv_heads
    if tokens:
        _rope_and_write()(
            qkv.data_ptr(), cos.data_ptr(), sin.data_ptr(), positions.data_ptr(), places.data_ptr(), pool.data_ptr(),
            _address(q_norm), _address(k_norm), eps, tokens, heads, kv_heads, dim, blocks, code,
        )  # fmt: skip
    return qkv[:, :heads]


def _check(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pool: torch.Tensor) -> None:
    tokens, total, dim = qkv.shape
    if dim % (2 * VECTOR_BYTES // qkv.element_size()) or dim > 256:
        raise ValueError(f"qkv: a head dimension of {dim}; wanted a multiple of 16 (float32: 8) up to 256")
    wants_like("qkv", qkv, qkv, tokens, total, dim)
    wants_vectors("qkv", qkv, dim)
    kv_heads, blocks = pool.shape[1:3]
    wants_like("pool", pool, qkv, 2, kv_heads, blocks, BLOCK_TOKENS, dim)
    wants_vectors("pool", pool, dim)
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dtype != torch.float32 or not table.is_contiguous() or table.shape[1:] != (dim // 2,):
            raise ValueError(
                f"{name}: {table.dtype} {tuple(table.shape)}; wanted contiguous float32 [context, {dim // 2}]"
            )
        wants_vectors(name, table, dim // 2)


def _address(x: torch.Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
