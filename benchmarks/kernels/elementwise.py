"""RMSNorm, silu(gate) * up and embeddings at the shapes of two models, in bfloat16.

PYTHONPATH=src python benchmarks/kernels/elementwise.py
"""

import json

import torch
from replay import replayed_us, row, turns

from octavo.kernels.cuda.elementwise import embed, rms_norm, silu_mul

SHAPES = (("1B", 2048, 8192), ("8B", 4096, 14336))
VOCABULARY = 128_256


def random(*size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda").bfloat16()


def norm(tokens: int, hidden: int) -> dict[str, object]:
    xs, weight = [random(tokens, hidden) for _ in range(turns(2 * tokens * hidden))], random(hidden)
    us = replayed_us([lambda x=x: rms_norm(x, weight, 1e-5) for x in xs])  # type: ignore[misc]
    return row(f"rms_norm {tokens} x {hidden}", us, 4 * tokens * hidden)


def activation(tokens: int, wide: int) -> dict[str, object]:
    xs = [random(tokens, 2 * wide) for _ in range(turns(4 * tokens * wide))]
    us = replayed_us([lambda x=x: silu_mul(x) for x in xs])  # type: ignore[misc]
    return row(f"silu_mul {tokens} x {wide}", us, 6 * tokens * wide)


def embedding(tokens: int, table: torch.Tensor) -> dict[str, object]:
    all_ids = [torch.randint(0, VOCABULARY, (tokens,), device="cuda", dtype=torch.int32) for _ in range(8)]
    us = replayed_us([lambda ids=ids: embed(ids, table) for ids in all_ids])  # type: ignore[misc]
    return row(f"embed {tokens} x {table.shape[1]}", us, 4 * tokens * table.shape[1])


def rows() -> list[dict[str, object]]:
    found = []
    for _, hidden, wide in SHAPES:
        table = random(VOCABULARY, hidden)
        for tokens in (1, 64, 256, 1024, 8192):
            found += [norm(tokens, hidden), activation(tokens, wide), embedding(tokens, table)]
    return found


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
