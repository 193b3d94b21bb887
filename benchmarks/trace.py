"""What a device did while something ran: a table of its kernels, and the share of time in which it did nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True, slots=True)
class Kernel:
    """share: of the time in which the device was busy."""

    name: str
    count: int
    us_each: float
    share: float


@dataclass(frozen=True, slots=True)
class Trace:
    """idle: share of the time between the first kernel and the last in which none ran."""

    kernels: list[Kernel]
    busy_ms: float
    idle: float


Tracing = Callable[[Callable[[], object], float], list[Trace]]  # of each device, of what takes so many seconds


def traced(work: Callable[[], object]) -> Trace:
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return of_profile(seen)


def of_profile(seen: profile) -> Trace:
    spans = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in seen.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    return _trace(spans) if spans else Trace([], 0.0, 1.0)


def _trace(spans: list[tuple[float, float, str]]) -> Trace:
    """spans: begin and end in us, and a name; sorted."""
    busy, until = 0.0, spans[0][0]
    for begin, end, _ in spans:
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    sums: dict[str, list[float]] = {}
    for begin, end, name in spans:
        sums.setdefault(_short(name), []).append(end - begin)
    kernels = [Kernel(name, len(us), sum(us) / len(us), sum(us) / busy) for name, us in sums.items()]
    kernels.sort(key=lambda kernel: -kernel.share)
    return Trace(kernels, busy / 1e3, 1 - busy / (until - spans[0][0]))


def _short(name: str) -> str:
    return name.replace("void ", "").replace("octavo::(anonymous namespace)::", "").split("(")[0][:90]


def show(trace: Trace, most: int = 14) -> None:
    print(f"  device busy {trace.busy_ms:.1f} ms, idle {trace.idle:.1%} of the time")
    for kernel in trace.kernels[:most]:
        print(f"  {kernel.share:6.1%} {kernel.count:7} x {kernel.us_each:9.2f} us  {kernel.name}")
