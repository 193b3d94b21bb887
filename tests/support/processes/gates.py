"""Workers whose processes stop at chosen points of their start until a test lets them go on, or for some seconds.

    import  the fork_server, before it can fork     fork   a rank, before it does anything
    serve   serve, before it listens            meet   a rank, before it reaches for the others
    core    the core, before it listens         read   a rank, in the middle of its weights
                                                hello  a rank that has loaded, before it says so
    ranks   the core, all ranks being there     step   a rank, before it runs a step
                                                capture  a rank, before it captures the graph that it says it can

`stalled`, closed, says how many seconds without progress make a load a stalled one for a supervisor that starts then.
They come to a point as they are: it lies in what they import or call, which is wrapped as they import it.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from support.processes.patched import ImportHooks, environment

if TYPE_CHECKING:
    from octavo.worker.messages.rank_info import RankCapabilities
    from octavo.worker.messages.step import Step
    from octavo.worker.runner.base import DeviceRunner

IMPORTED = {
    "import": "rank.devices",
    "serve": "leader.step_broadcast",
    "core": "scheduler.step_deadline",
}  # modules that these processes alone import
GRAPH = "decode-1"
_READS = 5  # tensors that a rank has by `read`


class Gate:
    """Of one point in one pod. While its file is there, a process waits: as many seconds as it says, else for ever."""

    def __init__(self, folder: Path, point: str) -> None:
        self._file = folder / f"at-{point}"  # sockets have plain names

    def close(self, seconds: float = 0.0) -> None:
        self._file.write_text(str(seconds or ""))

    def open(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def seconds(self) -> float:
        return float(self._file.read_text() or 0)

    @property
    def closed(self) -> bool:
        return self._file.exists()

    @property
    def waiting(self) -> list[int]:
        """Pids of the processes that have come to it."""
        return [int(path.suffix[1:]) for path in self._file.parent.glob(f"{self._file.name}.*")]

    def come(self) -> None:
        try:
            seconds = self._file.read_text()
        except FileNotFoundError:
            return
        self._file.with_suffix(f".{os.getpid()}").touch()
        if seconds:
            time.sleep(float(seconds))
        while not seconds and self.closed:
            time.sleep(0.02)


def main(folder: str, argv: list[str]) -> int:
    """`octavo ARGV`, whose processes come to gates in this folder."""
    from support.processes import commands

    from octavo.worker.lifecycle import liveness

    os.environ.update(environment(__name__, folder))
    if (stalled := Gate(Path(folder), "stalled")).closed:
        liveness.WORKER = replace(liveness.WORKER, starting_s=stalled.seconds)
    return commands.main(argv)


def install(folder: str) -> None:
    """In a process that the worker has started."""
    gate = partial(Gate, Path(folder))
    before = {f"octavo.worker.{module}": gate(point).come for point, module in IMPORTED.items()}
    after = {
        "rank.rank": partial(_gate_rank, gate),
        "rank.peers": lambda peers: _wrap(peers, "collective_of", gate("meet")),
        "models.weights": lambda weights: _wrap(weights.TensorReader, "read", gate("read"), first=_READS),
        "messages.rank_info": lambda rank_info: _wrap(rank_info, "intersect", gate("ranks")),
        "runner.cpu.runner": partial(_gate_runner, gate),
    }
    ImportHooks(before, {f"octavo.worker.{name}": change for name, change in after.items()}).install()


def _gate_rank(gate: Callable[[str], Gate], rank: ModuleType) -> None:
    _wrap(rank, "_load", gate("fork"))
    _wrap(rank, "_capabilities", gate("hello"))
    _claim(rank, gate("capture"))


def _gate_runner(gate: Callable[[str], Gate], runner: ModuleType) -> None:
    _wrap(runner.Runner, "run", gate("capture"), when=_captures)
    _wrap(runner.Runner, "run", gate("step"))


def _claim(rank: ModuleType, gate: Gate) -> None:
    """While the gate is closed, a rank tells of a graph; that a CPU has none does not disturb its steps."""
    capabilities = rank._capabilities

    def claiming(runner: "DeviceRunner") -> "RankCapabilities":
        said: RankCapabilities = capabilities(runner)
        return replace(said, graphs=[GRAPH]) if gate.closed else said

    rank._capabilities = claiming


def _captures(_: object, step: "Step", *rest: object) -> bool:
    return bool(step.graph) and not step.forward.slots


def _wrap(
    owner: ModuleType | type, name: str, gate: Gate, first: int = 0, when: Callable[..., bool] = lambda *_: True
) -> None:
    """first: calls that pass without looking. when: by the arguments, whether to look."""
    function, calls = getattr(owner, name), 0

    @wraps(function)
    def gated(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > first and when(*arguments):
            gate.come()
        return function(*arguments, **named)

    setattr(owner, name, gated)
