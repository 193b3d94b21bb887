"""A group of several pods as real processes over Unix sockets: what `octavo run` and a cluster start."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from support.patience import PATIENCE_S
from support.worker.worker import WorkerProcess

Reroute = Callable[[int, str], str]  # (pod, its group address) -> the address that the others dial


class GroupProcesses:
    """pods: by index; the first leads. Flags are `octavo worker`'s."""

    def __init__(
        self, model: str | Path, tensor: int, pipeline: int, per_pod: int | None = None, *flags: str,
        reroute: Reroute | None = None,
    ) -> None:  # fmt: skip
        per_pod = per_pod or tensor
        count = tensor * pipeline // per_pod
        shape = ("--tensor", str(tensor), "--pipeline", str(pipeline), "--ranks-per-pod", str(per_pod))
        self.pods = [
            WorkerProcess(model, *shape, "--pod-index", str(pod), "--pod-name", f"group-0-{pod}", *flags)
            for pod in range(count)
        ]
        addresses = [pod.addresses["group"] for pod in self.pods]
        if reroute is not None:
            addresses = [reroute(pod, address) for pod, address in enumerate(addresses)]
        for pod in self.pods:
            pod.add_flags("--peers", ",".join(addresses))
        self.slowest_start_s = 0.0

    @property
    def leader(self) -> WorkerProcess:
        return self.pods[0]

    def start(self) -> "GroupProcesses":
        for pod in self.pods:
            pod.start()
        return self

    async def ready(self, timeout_s: float = PATIENCE_S) -> None:
        began = time.monotonic()
        await asyncio.gather(*(pod.ready(timeout_s, self.text) for pod in self.pods))
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)

    @property
    def recovery_s(self) -> float:
        """Twice the aim of 10 s; where tests share a busy machine, twice what a start has taken there."""
        return 2 * max(10.0, self.slowest_start_s)

    def ranks(self) -> list[int]:
        """Pids of the ranks that live, in the order of their pods."""
        return [pid for pod in self.pods for pid in pod.ranks()]

    def text(self) -> str:
        return "\n".join(pod.text() for pod in self.pods)

    def close(self) -> None:
        for pod in self.pods:
            pod.close()


@contextlib.asynccontextmanager
async def group(
    model: str | Path, tensor: int, pipeline: int, per_pod: int | None = None
) -> AsyncIterator[GroupProcesses]:
    """One that serves; gone afterwards."""
    one = GroupProcesses(model, tensor, pipeline, per_pod).start()
    try:
        await one.ready()
        yield one
    finally:
        one.close()
