"""What the GPUs of a group did while something ran: a thread in each rank profiles when a file appears, for as long as
the file says, and writes what it has seen."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from threading import Thread, Timer
from trace import Kernel, Trace, of_profile

from torch.profiler import ProfilerActivity, profile

_POLL_S = 0.01
_LONGEST_S = 1.0  # of a profile: a rank's events are some 30,000 a second
_PATIENCE_S = 60.0


class RankTracer:
    """code: what each rank runs first (`RankProcesses(before=...)`)."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._turn = ranks, 0
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-trace-")
        here = str(Path(__file__).parent)
        self.code = f"import sys; sys.path.insert(0, {here!r}); import rank_trace; sys.path.pop(0)\n"
        self.code += f"rank_trace.watch({self._folder.name!r})"

    def traced(self, work: Callable[[], object], took_s: float) -> list[Trace]:
        """Of the ranks, a third of a run of `work`, which takes took_s, from a third on."""
        if not self._turn:  # the first profile of a process takes seconds to begin
            self._profile(work, 0.0, 0.05)
        return self._profile(work, took_s / 3, min(_LONGEST_S, took_s / 3))

    def _profile(self, work: Callable[[], object], after_s: float, seconds: float) -> list[Trace]:
        turn, self._turn = self._turn, self._turn + 1
        asked = Timer(after_s, _write, [Path(self._folder.name) / str(turn), str(seconds)])
        asked.start()
        work()
        asked.join()
        end = time.monotonic() + _PATIENCE_S
        while len(found := sorted(Path(self._folder.name).glob(f"{turn}-*"))) < self._ranks:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(found)} of {self._ranks} ranks have written a trace after {_PATIENCE_S} s")
            time.sleep(_POLL_S)
        return [_read(path) for path in found]


def watch(folder: str) -> None:
    """In a rank, before it has chosen its GPU."""
    Thread(target=_watch, args=(Path(folder),), daemon=True, name="trace").start()


def _watch(folder: Path) -> None:
    for turn in count():
        while not (folder / str(turn)).exists():
            time.sleep(_POLL_S)
        seconds = float((folder / str(turn)).read_text())
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            time.sleep(seconds)
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        _write(folder / f"{turn}-{gpu}", json.dumps(asdict(of_profile(seen))))


def _write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(text)
    partial.replace(path)


def _read(path: Path) -> Trace:
    found = json.loads(path.read_text())
    return Trace([Kernel(**kernel) for kernel in found["kernels"]], found["busy_ms"], found["idle"])
