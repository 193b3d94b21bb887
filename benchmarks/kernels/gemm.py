"""Products of medium batches against cuBLAS, at the shapes of two models.

    PYTHONPATH=src python benchmarks/kernels/gemm.py

The weights take turns, so that none is in the L2. The comparison has the same work: an activation that follows is a
kernel of its own there.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from replay import replayed_us, row, turns

from octavo.kernels.cuda.elementwise import silu_mul
from octavo.kernels.cuda.gemm import gemm

BATCHES = (24, 32, 64, 128, 192, 256)
WEIGHTS = {  # [out, in]
    "8B gate_up": (28672, 4096),
    "8B down": (4096, 14336),
    "8B qkv": (6144, 4096),
    "8B o": (4096, 4096),
    "1B gate_up": (16384, 2048),
    "1B down": (2048, 8192),
    "1B qkv": (3072, 2048),
    "1B o": (2048, 2048),
    "1B head": (128256, 2048),
}
Product = Callable[[torch.Tensor], object]


def random(*size: int) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_(0, size[-1] ** -0.5)


def products(name: str, batch: int) -> tuple[Product, Product]:
    """Ours and cuBLAS's, of a weight."""
    n, k = WEIGHTS[name]
    x, residual = random(batch, k), random(batch, n)
    if name.endswith("gate_up"):
        return lambda w: gemm.linear_silu_mul(x, w), lambda w: silu_mul(F.linear(x, w))
    if name.endswith(("down", " o")):
        return lambda w: gemm.linear_add(x, w, residual), lambda w: torch.addmm(residual, x, w.t(), out=residual)
    return lambda w: gemm.linear(x, w), lambda w: F.linear(x, w)


def rows() -> list[dict[str, object]]:
    table = []
    for name, size in WEIGHTS.items():
        weights = [random(*size) for _ in range(turns(2 * size[0] * size[1]))]
        for batch in BATCHES:
            ours, cublas = (
                replayed_us([lambda w=w, one=one: one(w) for w in weights]) for one in products(name, batch)
            )
            line = row(f"{name} {batch}", ours, weights[0].nbytes)
            table.append(line | {"cublas_us": round(cublas, 2)})
    return table


if __name__ == "__main__":
    for line in rows():
        print(line)
