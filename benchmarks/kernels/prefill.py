"""Prefill attention, in FLOP/s of causal work (4 d h for each query and key it sees), beside PyTorch's own attention.

    PYTHONPATH=src python benchmarks/kernels/prefill.py

PyTorch has its keys and values contiguous; ours come from blocks in random order.
"""

import json
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from replay import replayed_us
from torch.nn.attention import SDPBackend, sdpa_kernel

from octavo.kernels.cuda.attention.prefill import new_prefill_tiles, prefill_attention, prefill_plan

PEAK_FLOPS = 750e12  # what a large matrix product reaches on an H100
BLOCK, LAYERS, LAUNCHES = 16, 4, 12
SHAPES = (("1B", 32, 8, 64), ("8B", 32, 8, 128))
PEERS = {"flash_us": SDPBackend.FLASH_ATTENTION, "cudnn_us": SDPBackend.CUDNN_ATTENTION}


@dataclass(frozen=True, slots=True)
class Case:
    """rows: (start, count) of each; decoding: of them first, which another kernel serves."""

    name: str
    rows: tuple[tuple[int, int], ...]
    decoding: int = 0

    def flops(self, heads: int, dim: int) -> int:
        pairs = sum(count * start + count * (count + 1) // 2 for start, count in self.rows[self.decoding :])
        return 4 * dim * heads * pairs


CASES = (
    Case("2 prompts of 4,096", ((0, 4096),) * 2),
    Case("1 prompt of 4,096", ((0, 4096),)),
    Case("8,192 of a prompt after 24,576", ((24576, 8192),)),
    Case("8,192 of a prompt after 106,496", ((106496, 8192),)),
    Case("16 prompts of 512", ((0, 512),) * 16),
    Case("64 times 128 after 2,048", ((2048, 128),) * 64),
    Case("500 decode, 4 times 512 after 8,192", (*((1000, 1),) * 500, *((8192, 512),) * 4), decoding=500),
)


def random(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_()


def ours(case: Case, heads: int, kv_heads: int, dim: int) -> tuple[float, float]:
    """Microseconds of attention, and of the plan."""
    tokens = sum(count for _, count in case.rows)
    needed = [-(-(start + count) // BLOCK) for start, count in case.rows]
    order, at = torch.randperm(sum(needed)), 0
    tables = torch.zeros(len(needed), max(needed), dtype=torch.int32)
    for row, blocks in enumerate(needed):
        tables[row, :blocks] = order[at : at + blocks]
        at += blocks
    starts, counts = (torch.tensor([row[i] for row in case.rows]) for i in (0, 1))
    header = torch.tensor([len(needed), case.decoding, tokens, *[0] * 13])
    begins, slots = counts.cumsum(0) - counts, torch.arange(len(needed))
    *step, tables = (part.to("cuda", torch.int32) for part in (header, slots, starts, counts, begins, tables))
    pools = [random(2, kv_heads, sum(needed) + 1, BLOCK, dim) for _ in range(LAYERS)]
    q = random(tokens, heads + 2 * kv_heads, dim)[:, :heads]
    out = random(tokens, heads * dim)
    tiles = new_prefill_tiles(tokens, len(needed), heads, pools[0])
    plan_us = replayed_us([lambda: prefill_plan(tiles, *step)])
    calls = [lambda pool=pool: prefill_attention(q, pool, tables, tiles, out) for pool in pools]  # type: ignore[misc]
    return replayed_us(calls, LAUNCHES), plan_us


def pytorch(case: Case, heads: int, kv_heads: int, dim: int, backend: SDPBackend) -> float:
    """Microseconds for equal prompts without a prefix."""
    rows, count = len(case.rows), case.rows[0][1]
    inputs = [
        [random(rows, count, of, dim).transpose(1, 2) for of in (heads, kv_heads, kv_heads)] for _ in range(LAYERS)
    ]
    with sdpa_kernel(backend):
        calls = [
            lambda qkv=qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)  # type: ignore[misc]
            for qkv in inputs
        ]
        return replayed_us(calls, LAUNCHES)


def one(model: str, heads: int, kv_heads: int, dim: int, case: Case) -> dict[str, object]:
    us, plan_us = ours(case, heads, kv_heads, dim)
    flops = case.flops(heads, dim)
    found: dict[str, object] = {"name": f"prefill {model}: {case.name}", "us": round(us, 2), "flops": flops}
    found |= {"fraction": round(flops / us / PEAK_FLOPS * 1e6, 3), "plan_us": round(plan_us, 2)}
    if all(start == 0 for start, _ in case.rows):
        found |= {name: round(pytorch(case, heads, kv_heads, dim, backend), 2) for name, backend in PEERS.items()}
    return found


def rows() -> list[dict[str, object]]:
    return [one(*shape, case) for shape in SHAPES for case in CASES]


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
