"""How long the sum over GPUs of a host takes: `python benchmarks/kernels/allreduce.py [--ranks 2]`.

Microseconds of one sum of so many rows of 4,096 bfloat16 onto a residual stream, of 20 in a graph; ours, and NCCL's
with the addition that it lacks.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.models.gpu_ranks import on_gpus

from octavo.kernels.cuda.collectives import nccl
from octavo.worker.distributed.collective import Collective, path_of
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.runner.cuda import collectives

ROWS = (1, 8, 32, 64, 128, 256, 512, 1024, 8192)
HIDDEN, EACH, REPEAT = 4096, 20, 10


def in_graph_us(work: Callable[[], None]) -> float:
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


def measure(gloo: Gloo) -> tuple[str, list[tuple[int, float, float]]]:
    torch.cuda.init()
    ours = collectives.on_device(gloo)
    exchange = collectives.exchange_by(gloo)
    identity = exchange(nccl.new_id() if gloo.rank == 0 else bytes(nccl.ID_BYTES))[0]
    theirs = nccl.Nccl(gloo.rank, gloo.size, identity)
    rows = []
    for count in ROWS:
        x = torch.zeros((count, HIDDEN), dtype=torch.bfloat16, device="cuda")
        residual = torch.zeros_like(x)

        def add(by: Collective, residual: torch.Tensor = residual, x: torch.Tensor = x) -> None:
            by.add_sum_(residual, x)

        rows.append((count, in_graph_us(lambda add=add: add(ours)), in_graph_us(lambda add=add: add(theirs))))  # type: ignore[misc]
    return path_of(ours), rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    path, rows = on_gpus(parser.parse_args().ranks, measure)[0]
    print(f"{'rows':>6}{'KiB':>8}{path:>10}{'nccl':>10}  us")
    for count, ours, theirs in rows:
        print(f"{count:6}{count * HIDDEN * 2 >> 10:8}{ours:10.1f}{theirs:10.1f}")


if __name__ == "__main__":
    main()
