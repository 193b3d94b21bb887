"""Workers whose processes stop at chosen points of their start until a test lets them go on, or for some seconds.

    import  the fork_server, before it can fork     born   a rank, before it does anything
    serve   serve, before it listens            meet   a rank, before it reaches for the others
    core    the core, before it listens         read   a rank, in the middle of its weights
                                                hello  a rank that has loaded, before it says so
    ranks   the core, all ranks being there     step   a rank, before it runs a step
                                                capture  a rank, before it captures the graph that it says it can

`stalled`, closed, says how many seconds without progress make a load a stalled one for a supervisor that starts then.
They come to a point as they are: it lies in what they import or call, which is wrapped before they are forked.
"""

import importlib.abc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from support.processes import commands
from support.processes.spares import Spares
from support.worker.group import GroupProcesses
from support.worker.worker import until

from octavo.worker.lifecycle import liveness as watch
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.step import EAGER, Step

if TYPE_CHECKING:
    from octavo.worker.runner.base import DeviceRunner

IMPORTED = {
    "import": "rank.devices",
    "serve": "leader.step_broadcast",
    "core": "scheduler.step_deadline",
}  # modules that these processes alone import
GRAPH = "decode-1"
_READS = 5  # tensors that a rank has by `read`


class Gate:
    """Of one point in one pod. While its file is there who comes waits: as many seconds as it says, else for ever."""

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
        """Pids of who has come to it."""
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


class GatedGroup(GroupProcesses):
    """A group of pods with a rank each."""

    def __init__(self, model: Path, tensor: int, pipeline: int) -> None:
        super().__init__(model, tensor, pipeline, 1)
        for pod in self.pods:
            pod.main = partial(main, str(pod.folder), pod is self.leader)

    def gate(self, pod: int, point: str) -> Gate:
        return Gate(self.pods[pod].folder, point)

    async def come(self, pod: int, point: str) -> None:
        """Until somebody waits at this gate."""
        await until(lambda: bool(self.gate(pod, point).waiting), why=self.text)


def main(folder: str, leads: bool, argv: list[str]) -> int:
    """`octavo ARGV` with gates in this folder; what two lives need is forked."""
    _install(lambda point: Gate(Path(folder), point))
    if (stalled := Gate(Path(folder), "stalled")).closed:
        watch.WORKER = replace(watch.WORKER, starting_s=stalled.seconds)
    Spares((commands.NURSERY + commands.LIFE if leads else commands.NURSERY) * 2).install()
    return commands.alone(argv)


def _install(gate: Callable[[str], Gate]) -> None:
    from octavo.worker.messages import rank_info
    from octavo.worker.models.weights import TensorReader
    from octavo.worker.rank import peers, rank
    from octavo.worker.runner.cpu.runner import Runner

    for module in IMPORTED.values():
        sys.modules.pop(f"octavo.worker.{module}", None)
    sys.meta_path.insert(0, _Finder({f"octavo.worker.{module}": gate(point) for point, module in IMPORTED.items()}))
    _wrap(rank, "_load", gate("born"))
    _wrap(peers, "collective_of", gate("meet"))
    _wrap(TensorReader, "read", gate("read"), first=_READS)
    _wrap(rank, "_capabilities", gate("hello"))
    _claim(rank, gate("capture"))
    _wrap(Runner, "run", gate("capture"), when=_captures)
    _wrap(rank_info, "intersect", gate("ranks"))
    _wrap(Runner, "run", gate("step"))


def _claim(rank: ModuleType, gate: Gate) -> None:
    """While the gate is closed, a rank tells of a graph; that a CPU has none does not disturb its steps."""
    rank_info = rank._capabilities

    def claiming(runner: "DeviceRunner") -> RankCapabilities:
        said: RankCapabilities = rank_info(runner)
        return replace(said, graphs=[GRAPH]) if gate.closed else said

    rank._capabilities = claiming


def _captures(_: object, step: Step, *rest: object) -> bool:
    return step.graph != EAGER and not step.forward.slots


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


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing; who looks for one of these modules comes to a gate."""

    def __init__(self, gates: dict[str, Gate]) -> None:
        self._gates = gates

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if (gate := self._gates.get(name)) is not None:
            gate.come()
        return None
