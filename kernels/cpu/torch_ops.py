"""The CPU backend in PyTorch: few, wide operations; on CPU a step's cost beside the weights is mostly their number.

It serves what native_ops.py does not: half precision, and machines where the kernels were not built. Weights are stored
in oneDNN's blocked layout: for 2 to 64 rows it is two to four times as fast as a plain product.
"""

import torch
import torch.nn.functional as F

from octavo.kernels.backend import HeadNorms
from octavo.kernels.paged import DecodeRows, Paged, PrefillRow
from octavo.kernels.rope import rope_table

# oneDNN adds up a row in one run; shorter runs, added afterwards, keep float32 logits within 1e-4 of other orders.
_SUM_LENGTH = 288
_ROWS_HINT = 16  # the layout best for 1 to 64 rows, and not worse beyond


class Matrix:
    """A product with a weight. Only float32 is packed: oneDNN has no fast half precision on AVX2."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._bias = bias
        if weight.dtype != torch.float32 or not torch._C._has_mkldnn:
            self._weight: torch.Tensor | None = weight
            return
        self._weight = None
        slices = weight.chunk(-(-weight.shape[1] // _SUM_LENGTH), dim=1)
        self._widths = [part.shape[1] for part in slices]
        self._packed = [torch.ops.mkldnn._reorder_linear_weight(part.contiguous(), _ROWS_HINT) for part in slices]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._weight is not None:
            return F.linear(x, self._weight, self._bias)
        product = torch.ops.mkldnn._linear_pointwise.default
        first, *rest = self._packed
        parts = [part.contiguous() for part in x.split_with_sizes(self._widths, dim=-1)]
        total: torch.Tensor = product(parts[0], first, self._bias, "none", [], "")
        for part, packed in zip(parts[1:], rest, strict=True):
            total += product(part, packed, None, "none", [], "")
        return total


def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Matrix:
    return Matrix(weight, bias)


def linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return matrix(x)


def linear_add(x: torch.Tensor, matrix: Matrix, residual: torch.Tensor) -> None:
    residual += matrix(x)


def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return matrix(rms_norm(x, norm, eps))


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return linear_silu_mul(rms_norm(x, norm, eps), matrix)


def linear_silu_mul(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return silu_mul(matrix(x))


def embed(ids: torch.Tensor, table: torch.Tensor, first: int | None = None) -> torch.Tensor:
    if first is None:
        return table.index_select(0, ids)
    local = ids - first
    strange = (local < 0) | (local >= table.shape[0])
    return table.index_select(0, local.masked_fill_(strange, 0)).masked_fill_(strange[:, None], 0)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)


Rotary = tuple[torch.Tensor, torch.Tensor]


def rotary(frequencies: torch.Tensor, context: int, dtype: torch.dtype, device: torch.device) -> Rotary:
    return rope_table(frequencies, context, dtype)


def rotary_at(rotary: Rotary, positions: torch.Tensor) -> Rotary:
    """cos and signed sin, each [t, 1, d]: gathered once a step."""
    cos, sin = rotary
    return cos.index_select(0, positions), sin.index_select(0, positions)


def rope_and_write(
    qkv: torch.Tensor, rotary: Rotary, pool: torch.Tensor, paged: Paged, norms: HeadNorms | None
) -> torch.Tensor:
    (cos, sin), kv_heads, dim = rotary, pool.shape[1], pool.shape[4]
    heads = qkv.shape[1] - 2 * kv_heads
    if norms is not None:
        qkv[:, :heads] = rms_norm(qkv[:, :heads], norms.q, norms.eps)
        qkv[:, heads : heads + kv_heads] = rms_norm(qkv[:, heads : heads + kv_heads], norms.k, norms.eps)
    rotated = qkv[:, : heads + kv_heads]
    swapped = rotated.roll(dim // 2, -1)
    rotated.mul_(cos).addcmul_(swapped, sin)
    places = pool.view(2 * kv_heads, -1, dim)
    places.index_copy_(1, paged.write_index, qkv[:, heads:].transpose(0, 1))
    return qkv[:, :heads]


def attention(q: torch.Tensor, pool: torch.Tensor, paged: Paged) -> torch.Tensor:
    if not paged.prefills and paged.decode is not None:
        return _decode(q, pool, paged.decode)
    out = torch.empty((q.shape[0], q.shape[1] * q.shape[2]), dtype=q.dtype)
    if paged.decode is not None:
        out[: paged.decode.count] = _decode(q[: paged.decode.count], pool, paged.decode)
    for row in paged.prefills:
        tokens = slice(row.begin, row.begin + row.count)
        out[tokens] = _prefill(q[tokens], pool, row)
    return out


def _decode(q: torch.Tensor, pool: torch.Tensor, rows: DecodeRows) -> torch.Tensor:
    """All rows at once, padded to the longest."""
    (count, heads, dim), kv_heads = q.shape, pool.shape[1]
    keys, values = _gather(pool, rows.tables.view(-1)).view(2, kv_heads, count, -1, dim).unbind(0)
    grouped = q.view(count, kv_heads, heads // kv_heads, dim).transpose(0, 1)  # [k, r, g, d]
    out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=rows.mask)
    return out.transpose(0, 1).reshape(count, -1)


def _prefill(q: torch.Tensor, pool: torch.Tensor, row: PrefillRow) -> torch.Tensor:
    (count, heads, dim), kv_heads = q.shape, pool.shape[1]
    keys, values = _gather(pool, row.table).view(2, kv_heads, 1, -1, dim).unbind(0)
    if row.mask is None:
        keys, values = keys[:, :, :count], values[:, :, :count]
    group = heads // kv_heads
    grouped = q.view(count, kv_heads, group, dim).permute(1, 2, 0, 3)  # [k, g, count, d]
    out = F.scaled_dot_product_attention(
        grouped,
        keys.expand(-1, group, -1, -1),
        values.expand(-1, group, -1, -1),
        attn_mask=row.mask,
        is_causal=row.mask is None,
    )
    return out.permute(2, 0, 1, 3).reshape(count, -1)


def _gather(pool: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """[2 * k, len(blocks), block_size * d]: one copy of whole blocks, for keys and values together."""
    flat = pool.view(2 * pool.shape[1], pool.shape[2], -1)
    return flat.index_select(1, blocks)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
