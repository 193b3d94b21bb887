"""How long the sum over GPUs of a host takes: `python benchmarks/kernels/allreduce.py [--ranks 2]`.

Microseconds of one sum of so many rows of 4,096 bfloat16 onto a residual stream, of 20 in a graph; ours, and NCCL's
with the addition that it lacks; and ours with the norm that follows, where that is one kernel.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.models.gpu_ranks import on_gpus

from octavo.kernels.cuda.collectives import nccl
from octavo.worker.distributed.collective import Collective, Norming, path_of
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.runner.cuda import collectives

ROWS = (1, 8, 32, 64, 128, 256, 512, 1024, 8192)
HIDDEN, EACH, REPEAT = 4096, 20, 10


def in_graph_us(work: Callable[[], object]) -> float:
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for _ in range(EACH):
            work()
    graph.replay()
    torch.cuda.synchronize()
    took = []
    for _ in range(REPEAT):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - begin) / EACH)
    return statistics.median(took) * 1e6


def measure(gloo: Gloo) -> tuple[str, list[tuple[int, float, float, float]]]:
    """NaN where the norm is another kernel."""
    torch.cuda.init()
    ours = collectives.on_device(gloo)
    weight = torch.ones(HIDDEN, dtype=torch.bfloat16, device="cuda")
    exchange = collectives.exchange_by(gloo)
    identity = exchange(nccl.new_id() if gloo.rank == 0 else bytes(nccl.ID_BYTES))[0]
    theirs = nccl.Nccl(gloo.rank, gloo.size, identity)
    rows = []
    for count in ROWS:
        x = torch.zeros((count, HIDDEN), dtype=torch.bfloat16, device="cuda")
        residual = torch.zeros_like(x)

        def add(by: Collective, residual: torch.Tensor = residual, x: torch.Tensor = x) -> None:
            by.add_sum_(residual, x)

        def normed(residual: torch.Tensor = residual, x: torch.Tensor = x) -> torch.Tensor | None:
            return ours.add_sum_norm_(residual, x, weight, 1e-5) if isinstance(ours, Norming) else None

        with_norm = math.nan if normed() is None else in_graph_us(normed)
        rows.append((count, *(in_graph_us(partial(add, by)) for by in (ours, theirs)), with_norm))
    return path_of(ours), rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    path, rows = on_gpus(parser.parse_args().ranks, measure)[0]
    print(f"{'rows':>6}{'KiB':>8}{path:>10}{'nccl':>10}{'with norm':>11}  us")
    for count, ours, theirs, normed in rows:
        print(f"{count:6}{count * HIDDEN * 2 >> 10:8}{ours:10.1f}{theirs:10.1f}{normed:11.1f}")


if __name__ == "__main__":
    main()
