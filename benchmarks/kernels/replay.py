"""Time of launches as a server has them: a graph of many, replayed."""

import statistics
from collections.abc import Callable, Sequence

import torch

MEMORY_BYTES_PER_S = 3.0e12  # what a copy moves on an H100, bytes read and written


def replayed_us(calls: Sequence[Callable[[], object]], launches: int = 48, replays: int = 9) -> float:
    """Microseconds of one launch: the median of replays of a graph in which `calls` take turns."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(launches):
            calls[launch % len(calls)]()
    times = []
    for _ in range(replays + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times[2:])


def row(name: str, us: float, moved: int) -> dict[str, object]:
    """moved: the bytes that have to be read and written."""
    fraction = moved / us / MEMORY_BYTES_PER_S * 1e6
    return {"name": name, "us": round(us, 2), "bytes": moved, "fraction": round(fraction, 3)}


def turns(size: int) -> int:
    """How many buffers of `size` bytes take turns, so that none is still in the L2 when it is due."""
    return max(2, min(64, -(-200_000_000 // size)))
