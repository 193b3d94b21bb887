"""silu(gate) * up of large batches, in one kernel and by cuBLAS with an activation after it, at two models' shapes.

    PYTHONPATH=src python benchmarks/kernels/gemm_large.py

Each for a tenth of a second, the second half of which counts: a large product takes all the power that a card may
have, and a short burst shows a clock that does not last.
"""

import json
from collections.abc import Callable

import torch
import torch.nn.functional as F

from octavo.kernels.cuda.elementwise import silu_mul
from octavo.kernels.cuda.gemm import gemm_large

SHAPES = (("8B", 28672, 4096), ("1B", 16384, 2048))
TOKENS = (512, 1024, 1536, 2048, 3072, 4096, 8192)


def random(*size: int) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_(0, size[-1] ** -0.5)


def sustained_us(call: Callable[[int], object], seconds: float = 0.1) -> float:
    call(0)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for turn in range(4):
        call(turn)
    end.record()
    end.synchronize()
    turns = max(4, round(seconds * 4e3 / begin.elapsed_time(end)))
    for turn in range(turns):
        if turn == turns // 2:
            begin.record()
        call(turn)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (turns - turns // 2)


def rows() -> list[dict[str, object]]:
    found = []
    for name, out, width in SHAPES:
        weights = [random(out, width) for _ in range(4)]
        for tokens in TOKENS:
            x = random(tokens, width)
            ours = sustained_us(lambda turn, x=x, weights=weights: gemm_large.linear_silu_mul(x, weights[turn % 4]))  # type: ignore[misc]
            peer = sustained_us(lambda turn, x=x, weights=weights: silu_mul(F.linear(x, weights[turn % 4])))  # type: ignore[misc]
            found.append(
                {
                    "name": f"gate_up {name}: {tokens}", "us": round(ours, 1), "cublas_us": round(peer, 1),
                    "tflops": round(2e-6 * tokens * out * width / ours), "chosen": gemm_large.is_fastest(x, weights[0]),
                }
            )  # fmt: skip
    return found


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
