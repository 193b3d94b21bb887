"""Rotation and the write of k and v into the pool, at the shapes of two models, in bfloat16; with head norms too.

PYTHONPATH=src python benchmarks/kernels/rope.py
"""

import json

import torch
from replay import replayed_us, row, turns

from octavo.kernels.cuda.attention.rope import rope_and_write

BLOCK, CONTEXT = 16, 8192
SHAPES = (("1B", 32, 8, 64), ("8B", 32, 8, 128))


def one(name: str, heads: int, kv_heads: int, dim: int, tokens: int, normed: bool) -> dict[str, object]:
    size = 2 * tokens * dim
    count = turns(size * (heads + 2 * kv_heads))
    qkvs = [torch.randn(tokens, heads + 2 * kv_heads, dim, device="cuda").bfloat16() for _ in range(count)]
    blocks = -(-tokens // BLOCK) + 1
    pools = [torch.zeros(2, kv_heads, blocks, BLOCK, dim, device="cuda").bfloat16() for _ in range(count)]
    angles = torch.rand(CONTEXT, dim // 2, device="cuda") * 6
    cos, sin = angles.cos(), angles.sin()
    positions = torch.arange(tokens, device="cuda", dtype=torch.int32) % CONTEXT
    places = torch.arange(tokens, device="cuda", dtype=torch.int32)
    norm = torch.ones(dim, device="cuda").bfloat16() if normed else None
    calls = [
        lambda qkv=qkv, pool=pool: rope_and_write(qkv, cos, sin, positions, places, pool, norm, norm, 1e-6)  # type: ignore[misc]
        for qkv, pool in zip(qkvs, pools, strict=True)
    ]
    moved = 2 * size * (heads + 2 * kv_heads)
    return row(f"rope {name} {tokens}{' normed' if normed else ''}", replayed_us(calls), moved)


def rows() -> list[dict[str, object]]:
    return [
        one(*shape, tokens, normed)
        for shape in SHAPES
        for normed in (False, True)
        for tokens in (1, 64, 256, 1024, 8192)
    ]


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
