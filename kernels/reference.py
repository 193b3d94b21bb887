"""The oracle: every kernel in the plainest PyTorch, one row and one head at a time where that is clearest. Slow."""

import torch

from octavo.kernels.backend import Linear
from octavo.kernels.paged import Paged


def linear(weight: torch.Tensor) -> Linear:
    return lambda x: x @ weight.T


def embed(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return table[ids]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps), total


def rope_and_write(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pool: torch.Tensor, write_index: torch.Tensor
) -> torch.Tensor:
    kv_heads, block_size = pool.shape[1], pool.shape[3]
    heads = qkv.shape[1] - 2 * kv_heads
    q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    k = _rotated(k, cos, sin)
    for token, place in enumerate(write_index.tolist()):
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
            out[token] = _attend(q[token : token + 1], pool, paged.decode.tables[token], length - 1)[0]
    for row in paged.prefills:
        tokens = slice(row.begin, row.begin + row.count)
        out[tokens] = _attend(q[tokens], pool, row.table, row.start)
    return out.flatten(1)


def _attend(q: torch.Tensor, pool: torch.Tensor, table: torch.Tensor, start: int) -> torch.Tensor:
    """q: [count, h, d] at positions start, start+1, ..."""
    group = q.shape[1] // pool.shape[1]
    out = torch.empty_like(q)
    for index in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = (part[head // group, table].flatten(0, 1)[: start + index + 1] for part in pool)
            scores = (keys.float() @ q[index, head].float()) * q.shape[2] ** -0.5
            out[index, head] = (scores.softmax(0) @ values.float()).to(q.dtype)
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return gate / (1 + torch.exp(-gate)) * up
