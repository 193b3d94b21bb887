"""Rotation, head norms and the write into the pool agree with float64; nothing else of the pool changes."""

import pytest
import torch

from octavo.kernels.cuda.attention.rope import rope_and_write

pytestmark = pytest.mark.gpu

EPS, CONTEXT, BLOCK = 1e-6, 5000, 16
# Of the result: half a unit of the last place. Absolute: float32 sums of operands around 1 that may cancel.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 1e-6}


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def close(out: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(out.double(), exact, rtol=1.05 * ROUNDING[out.dtype], atol=4e-6)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("dim", [16, 64, 96, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (2, 1), (6, 2), (4, 1), (15, 3), (6, 1), (7, 1), (32, 4), (3, 3)], ids=str)
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 257, 2051])
def test_rope_and_write(tokens: int, heads: tuple[int, int], dim: int, dtype: torch.dtype, normed: bool) -> None:
    h, k = heads
    blocks = -(-tokens // BLOCK) + 3
    qkv = torch.randn(tokens, h + 2 * k, dim, device="cuda").to(dtype)
    pool = torch.randn(2, k, blocks + 1, BLOCK, dim, device="cuda").to(dtype)
    positions = torch.randint(0, CONTEXT, (tokens,), device="cuda", dtype=torch.int32)
    places = torch.randperm(blocks * BLOCK, device="cuda")[:tokens].int()
    places[tokens // 2] = -1
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angles = torch.outer(torch.arange(CONTEXT, device="cuda"), frequencies)
    cos, sin = angles.cos(), angles.sin()
    norms = [torch.randn(dim, device="cuda").to(dtype) if normed else None for _ in range(2)]
    q, keys, v = qkv.double().split((h, k, k), dim=1)
    if norms[0] is not None and norms[1] is not None:
        q, keys = norm(q, norms[0]), norm(keys, norms[1])
    at = (table[positions].double()[:, None] for table in (cos, sin))
    c, s = at
    wanted = pool.double()
    here = places >= 0
    block, offset = places[here].long() // BLOCK, places[here].long() % BLOCK
    wanted[0, :, block, offset] = rotated(keys, c, s)[here].transpose(0, 1)
    wanted[1, :, block, offset] = v[here].transpose(0, 1)

    out = rope_and_write(qkv, cos, sin, positions, places, pool, norms[0], norms[1], EPS)
    assert out.shape == (tokens, h, dim) and out.data_ptr() == qkv.data_ptr()
    close(out, rotated(q, c, s))
    close(pool, wanted)


def test_what_does_not_fit_is_refused_by_name() -> None:
    qkv = torch.zeros(2, 3, 64, device="cuda", dtype=torch.bfloat16)
    pool = torch.zeros(2, 1, 4, BLOCK, 64, device="cuda", dtype=torch.bfloat16)
    table, index = torch.zeros(10, 32, device="cuda"), torch.zeros(2, device="cuda", dtype=torch.int32)
    arguments = (table, table, index, index, pool, None, None, EPS)
    with pytest.raises(ValueError, match="pool"):
        rope_and_write(qkv.half(), *arguments)
    with pytest.raises(ValueError, match="qkv: a head dimension of 40"):
        rope_and_write(qkv[:, :, :40].contiguous(), *arguments)
    with pytest.raises(ValueError, match="cos"):
        rope_and_write(qkv, table.bfloat16(), *arguments[1:])
    with pytest.raises(ValueError, match="places"):
        rope_and_write(qkv, table, table, index, index.long(), *arguments[4:])
