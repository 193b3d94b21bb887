"""The oracle: every kernel in the plainest PyTorch, one row and one head at a time where that is clearest. Slow."""

import torch

from octavo.kernels.backend import HeadNorms
from octavo.kernels.paged import Paged, windowed
from octavo.kernels.rope import rope_table

__all__ = ["windowed"]

Matrix = tuple[torch.Tensor, torch.Tensor | None]
Rotary = tuple[torch.Tensor, torch.Tensor]


def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Matrix:
    return weight, bias


def linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    weight, bias = matrix
    product = x @ weight.T
    return product if bias is None else product + bias


def linear_add(x: torch.Tensor, matrix: Matrix, residual: torch.Tensor) -> None:
    residual += linear(x, matrix)


def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return linear(rms_norm(x, norm, eps), matrix)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return linear_silu_mul(rms_norm(x, norm, eps), matrix)


def linear_silu_mul(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return silu_mul(linear(x, matrix))


def embed(ids: torch.Tensor, table: torch.Tensor, first: int | None = None) -> torch.Tensor:
    if first is None:
        return table[ids]
    known = torch.isin(ids, torch.arange(first, first + table.shape[0]))
    return torch.where(known[:, None], table[torch.where(known, ids - first, 0)], 0)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def rotary(frequencies: torch.Tensor, context: int, dtype: torch.dtype, device: torch.device) -> Rotary:
    cos, sin = rope_table(frequencies, context, dtype)
    return cos.to(device), sin.to(device)


def rotary_at(rotary: Rotary, positions: torch.Tensor) -> Rotary:
    cos, sin = rotary
    return cos[positions], sin[positions]


def rope_and_write(
    qkv: torch.Tensor, rotary: Rotary, pool: torch.Tensor, paged: Paged, norms: HeadNorms | None
) -> torch.Tensor:
    (cos, sin), kv_heads, block_size = rotary, pool.shape[1], pool.shape[3]
    heads = qkv.shape[1] - 2 * kv_heads
    q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    if norms is not None:
        q, k = rms_norm(q, norms.q, norms.eps), rms_norm(k, norms.k, norms.eps)
    k = _rotated(k, cos, sin)
    for token, place in enumerate(paged.write_index.tolist()):
        block, offset = divmod(place, block_size)
        pool[0, :, block, offset] = k[token]
        pool[1, :, block, offset] = v[token]
    return _rotated(q, cos, sin)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((second, first), dim=-1) * sin


def attention(q: torch.Tensor, pool: torch.Tensor, paged: Paged) -> torch.Tensor:
    out = torch.empty_like(q)
    if paged.decode is not None:
        for token, length in enumerate(paged.decode.lengths.tolist()):
            out[token] = _attend(q[token : token + 1], pool, paged.decode.tables[token], length - 1, paged.window)[0]
    for row in paged.prefills:
        tokens = slice(row.begin, row.begin + row.count)
        out[tokens] = _attend(q[tokens], pool, row.table, row.start, paged.window)
    return out.flatten(1)


def _attend(q: torch.Tensor, pool: torch.Tensor, table: torch.Tensor, start: int, window: int) -> torch.Tensor:
    """q: [count, h, d] at positions start, start+1, ..."""
    group = q.shape[1] // pool.shape[1]
    out = torch.empty_like(q)
    for index in range(q.shape[0]):
        end = start + index + 1
        seen = slice(max(0, end - window) if window else 0, end)
        for head in range(q.shape[1]):
            keys, values = (part[head // group, table].flatten(0, 1)[seen] for part in pool)
            scores = (keys.float() @ q[index, head].float()) * q.shape[2] ** -0.5
            out[index, head] = (scores.softmax(0) @ values.float()).to(q.dtype)
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return gate / (1 + torch.exp(-gate)) * up
