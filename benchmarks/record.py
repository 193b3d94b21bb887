"""Where a figure comes from, and where it goes: the machine, the versions and the commit, written beside it.

    with Found(args.out, machine()) as found:
        found.put("8b", {...})

Each `put` writes the whole file: what was measured is kept when the benchmark fails, is interrupted or runs into a
time limit (`timeout -k 20 60 python benchmarks/...`). The file says how it ended.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
COMMIT = "OCTAVO_COMMIT"  # for a copy of the sources without their history; it wins where there is one
CUT = (signal.SIGTERM, signal.SIGINT)


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:  # Any: JSON
    """load: the one-minute load average at this moment; a figure taken on a busy machine says so."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "commit": os.environ.get(COMMIT) or _head() or "unknown",
    }


def _head() -> str:
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    except OSError:  # no git
        return ""
    return said.stdout.strip()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    vectors = next((line.split() for line in lines if line.startswith("flags")), [])
    widest = next((name.upper() for name in ("avx512f", "avx2", "avx") if name in vectors), "no AVX")
    return f"{names[0] if names else platform.machine()} ({widest})"


def write(path: Path, made_on: dict[str, Any], results: object) -> None:
    """Any: JSON. Prints where it went."""
    _write(path, {"machine": made_on, "results": results})
    print(f"written to {path}", flush=True)


def _write(path: Path, content: object) -> None:
    """Whole or not at all, whenever the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(path)


class Cut(BaseException):
    """A signal ends the benchmark: it passes through whatever handles errors."""


class Found:
    """What a benchmark found so far. Within its `with` the first SIGTERM or SIGINT raises Cut, which exits with 1."""

    def __init__(self, out: Path | None, made_on: dict[str, Any]) -> None:
        self._out, self._made_on = out, made_on
        self._results: dict[str, Any] = {}
        self._begin = time.monotonic()
        self._before: dict[signal.Signals, Any] = {}

    def put(self, name: str, result: Any) -> None:
        """In the place of what it put under this name before."""
        self._results[name] = result
        self._keep("under way")

    def __enter__(self) -> "Found":
        self._keep("under way")  # where it cannot be written, that is known before anything is measured
        for number in CUT:
            self._before[number] = signal.signal(number, self._cut)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        ended = "complete" if error is None else f"{error}" if kind is Cut else f"{type(error).__name__}: {error}"
        self._keep(ended)
        if self._out is not None:
            print(f"written to {self._out}", flush=True)
        if isinstance(error, Cut):
            print(f"{ended}; {len(self._results)} results are kept", file=sys.stderr)
            sys.exit(1)

    def _cut(self, number: int, _: FrameType | None) -> None:
        for one in CUT:  # the way out stops servers: a second signal must not stop that
            signal.signal(one, signal.SIG_IGN)
        said = f"cut off by {signal.Signals(number).name} after {time.monotonic() - self._begin:.1f} s"
        self._keep(said)  # now: the sender may kill soon
        raise Cut(said)

    def _keep(self, ended: str) -> None:
        if self._out is not None:
            found = list(self._results.values())
            _write(self._out, {"machine": self._made_on, "ended": ended, "results": found})
