"""Decode attention: `PYTHONPATH=src python benchmarks/kernels/decode.py`. One layer, keys and values from memory.

Layers rotate, so that a pool is not in the cache when its turn comes. Bytes count the keys and values that a
step must read, shared prefixes once.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from octavo.kernels.cuda.attention.decode import DecodePlan, decode_attention, decode_plan, new_decode_plan

BLOCK, PEAK_BYTES = 16, 3.0e12
ROTATION_BYTES = 400e6  # several times the cache
DEVICE = torch.device("cuda")
SHAPES = {"1B": (32, 8, 64), "8B": (32, 8, 128)}  # heads, kv heads, head dim


@dataclass(frozen=True)
class Batch:
    q: torch.Tensor
    pools: list[torch.Tensor]
    tables: torch.Tensor
    row_slots: torch.Tensor
    lengths: torch.Tensor
    header: torch.Tensor
    plan: DecodePlan
    out: torch.Tensor
    kv_bytes: int  # a layer

    def divide(self) -> None:
        decode_plan(self.plan, self.header, self.row_slots, self.lengths, self.tables)

    def attend(self, layer: int) -> None:
        pool = self.pools[layer % len(self.pools)]
        rows = (self.row_slots, self.lengths, self.header)
        decode_attention(self.q, pool, self.tables, *rows, self.plan, self.out)


def make_batch(shape: str, lengths: list[int], common: int = 0) -> Batch:
    """common: tokens that all rows share."""
    heads, kv_heads, d = SHAPES[shape]
    rows, shared = len(lengths), common // BLOCK
    needed = [-(-length // BLOCK) - shared for length in lengths]
    blocks = shared + sum(needed)
    order = torch.randperm(blocks, dtype=torch.int32)
    tables = torch.full((rows + 1, shared + max(needed)), blocks, dtype=torch.int32)
    tables[:rows, :shared] = order[:shared]
    at = shared
    for row, count in enumerate(needed):
        tables[row, shared : shared + count] = order[at : at + count]
        at += count
    token = 2 * kv_heads * d * 2
    kv_bytes = token * (common + sum(length - common for length in lengths))
    layers = max(2, round(ROTATION_BYTES / kv_bytes))
    pools = [torch.randn(2, kv_heads, blocks + 1, BLOCK, d, device=DEVICE, dtype=torch.bfloat16) for _ in range(layers)]
    return Batch(
        q=torch.randn(rows, heads, d, device=DEVICE, dtype=torch.bfloat16),
        pools=pools,
        tables=tables.to(DEVICE),
        row_slots=torch.arange(rows, dtype=torch.int32, device=DEVICE),
        lengths=torch.tensor(lengths, dtype=torch.int32, device=DEVICE),
        header=torch.tensor([rows, rows, rows, rows] + [0] * 12, dtype=torch.int32, device=DEVICE),
        plan=new_decode_plan(rows, heads, kv_heads, d, torch.bfloat16, DEVICE),
        out=torch.empty(rows, heads * d, device=DEVICE, dtype=torch.bfloat16),
        kv_bytes=kv_bytes,
    )


def microseconds(call: Callable[[int], None], launches: int, repeats: int = 15) -> float:
    """Of one of `launches` calls in a graph; the median of `repeats` replays."""
    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(launches):
            call(launch)
    times = []
    for _ in range(repeats + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times[3:])


CASES = {
    "1 row of 128": ([128], 0),
    "1 row of 640": ([640], 0),
    "1 row of 8192": ([8192], 0),
    "8 rows of 640": ([640] * 8, 0),
    "64 rows of 640": ([640] * 64, 0),
    "256 rows of 640": ([640] * 256, 0),
    "256 rows of 100..1024": ([100 + 924 * i // 255 for i in range(256)], 0),
    "128 rows, 2048 of 2176 shared": ([2176] * 128, 2048),
}


def measured(shape: str, name: str, lengths: list[int], common: int) -> list[dict[str, float | str]]:
    batch = make_batch(shape, lengths, common)
    batch.divide()
    us = microseconds(batch.attend, 64 if batch.kv_bytes < 2e7 else 12)
    fraction = batch.kv_bytes / us / 1e-6 / PEAK_BYTES
    return [
        {"name": f"decode {shape} {name}", "us": us, "bytes": batch.kv_bytes, "fraction": fraction},
        {"name": f"decode plan {shape} {name}", "us": microseconds(lambda _: batch.divide(), 32)},
    ]


def rows() -> list[dict[str, float | str]]:
    return [row for shape in SHAPES for name, case in CASES.items() for row in measured(shape, name, *case)]


if __name__ == "__main__":
    for row in rows():
        rest = f"{row['fraction']:6.1%} of {PEAK_BYTES / 1e12} TB/s" if "fraction" in row else ""
        print(f"{row['name']:48} {row['us']:8.2f} us {rest}")
