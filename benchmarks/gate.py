"""Is this tree slower than another? `python benchmarks/gate.py --against COMMIT|FOLDER [--turns N] [--only NAME,...]`.

Both trees measure themselves, by turns on this machine, with their own benchmarks: engine.py (with a GPU: 1B and 8B,
ten workloads each) and schedule.py (the scheduler's cost of a step, four). A figure fails that is worse by more than
3 % and its noise, which the turns give; the exit status is then 1. A workload that only one tree has is named and
left out.

A COMMIT is checked out beside this tree's history, into a temporary folder; of a FOLDER kernels are built where they
lie. Checkpoints of random weights are written once and shared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import comparison
import record
from comparison import Figure
from served import MODELS, gpu

MOST_LOST = 0.03
WORKLOADS = "decode1,decode8,decode64,decode256,mixed256,prefill,prefix,rush64,many512,long8"
Json = dict[str, Any]  # Any: JSON


class Tree:
    """A tree of sources that measures itself."""

    def __init__(self, name: str, folder: Path, arguments: argparse.Namespace) -> None:
        self.name, self._folder, self._arguments = name, folder, arguments
        self.turns: list[list[Figure]] = []
        self.workloads: list[str] = []

    def prepare(self) -> None:
        """Build its kernels; ask which workloads it knows."""
        if not gpu():
            return
        self._run("-m", "octavo.kernels.build")
        asked = (
            "import json, sys; sys.path.insert(0, 'benchmarks'); import workloads; print(json.dumps(workloads.NAMES))"
        )
        self.workloads = json.loads(self._run("-c", asked).splitlines()[-1])

    def measure(self, programs: Sequence[str], workloads: Sequence[str]) -> None:
        """One turn."""
        figures: list[Figure] = []
        with tempfile.TemporaryDirectory(prefix="octavo-gate-") as folder:
            if "engine" in programs and workloads:
                out = Path(folder) / "engine.json"
                asked = ["--workloads", ",".join(workloads), "--repeat", str(self._arguments.repeat)]
                models = ["--models", str(self._arguments.models), "--out", str(out)]
                self._run("benchmarks/engine.py", *self._arguments.shapes, *asked, *models)
                figures += engine_figures(json.loads(out.read_text())["results"])
            if "schedule" in programs:
                out = Path(folder) / "schedule.json"
                self._run("benchmarks/schedule.py", "--steps", "500", "--out", str(out), failing=True)
                figures += schedule_figures(json.loads(out.read_text())["results"])
        self.turns.append(figures)

    def _run(self, *command: str, failing: bool = False) -> str:
        """What a Python process in this tree prints. failing: an exit status of 1 is a verdict of its own."""
        paths = os.pathsep.join(filter(None, (str(self._folder / "src"), os.environ.get("PYTHONPATH", ""))))
        done = subprocess.run(
            [sys.executable, *command], cwd=self._folder, env=os.environ | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode not in ((0, 1) if failing else (0,)):
            sys.exit(f"gate.py: {' '.join(command)} in {self._folder} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout


def engine_figures(rows: Sequence[Json]) -> list[Figure]:
    """tok/s of each run of each row of engine.py."""
    return [
        Figure(
            f"{row['shape']} {row['workload']}", "tok/s", True,
            tuple(row["tok_s"] * row["seconds"] / seconds for seconds in row["runs"]),
        )
        for row in rows
    ]  # fmt: skip


def schedule_figures(results: Json) -> list[Figure]:
    """Microseconds of schedule and update in each scenario of schedule.py."""
    return [
        Figure(f"schedule {name}", "us", False, (scenario["schedule_plus_update_us"],))
        for name, scenario in results.items()
        if isinstance(scenario, dict)
    ]


@contextmanager
def sources(against: str) -> Iterator[Path]:
    """The folder itself, or one with the commit checked out."""
    if (Path(against) / "benchmarks").is_dir():
        yield Path(against).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="octavo-gate-") as folder:
        tree = Path(folder) / "tree"
        added = _git("worktree", "add", "--detach", str(tree), against)
        if added.returncode:
            sys.exit(f"gate.py: --against {against}: neither a folder of sources nor a commit: {added.stderr.strip()}")
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", *command], cwd=record.ROOT, capture_output=True, text=True)


def measured(before: Tree, now: Tree, arguments: argparse.Namespace) -> None:
    """By turns, each tree first in every other one: what drifts hits both."""
    for tree in (before, now):
        tree.prepare()
    asked = [name for name in arguments.workloads.split(",") if name in before.workloads and name in now.workloads]
    if gpu() and (left := set(arguments.workloads.split(",")) - set(asked)):
        print(f"not in both trees: {', '.join(sorted(left))}", file=sys.stderr)
    programs = [name for name in arguments.only.split(",") if name != "engine" or gpu()]
    for turn in range(arguments.turns):
        for tree in (before, now) if turn % 2 == 0 else (now, before):
            begin = time.monotonic()
            tree.measure(programs, asked)
            print(f"turn {turn + 1}: {tree.name}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--against", required=True, metavar="COMMIT|FOLDER", help="the other tree")
    add("--turns", type=int, default=3, help="of each tree, at least 2 (default: %(default)s)")
    add("--repeat", type=int, default=2, help="runs of a workload in a turn (default: %(default)s)")
    add("--only", default="engine,schedule", metavar="NAME,...", help="default: %(default)s; engine needs a GPU")
    add("--shapes", nargs="+", default=["1b", "8b"], help="of engine.py (default: 1b 8b)")
    add("--workloads", default=WORKLOADS, help="of engine.py (default: %(default)s)")
    add("--models", type=Path, default=MODELS, help="where random checkpoints lie")
    add("--out", type=Path, help="JSON")
    arguments = parser.parse_args()
    if arguments.turns < 2:
        parser.error("--turns: the noise is known from at least 2")
    if unknown := set(arguments.only.split(",")) - {"engine", "schedule"}:
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are engine, schedule")
    made_on = record.machine() | {"gpu": gpu(), "against": arguments.against}
    with sources(arguments.against) as folder:
        before, now = Tree("before", folder, arguments), Tree("now", record.ROOT, arguments)
        measured(before, now, arguments)
    found = comparison.compare_all(comparison.merged(before.turns), comparison.merged(now.turns), MOST_LOST)
    verdicts, single = found
    print(comparison.table(verdicts))
    if single:
        print(f"of one tree only: {', '.join(single)}")
    if arguments.out is not None:
        record.write(arguments.out, made_on, [asdict(one) for one in verdicts])
    failed = [one.name for one in verdicts if one.failed]
    said = "passed" if verdicts else "FAILED, nothing was compared"
    said = f"FAILED: {', '.join(failed)}" if failed else said
    print(f"{said}: {len(verdicts)} figures, at most {MOST_LOST:.0%} worse beyond their noise")
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    raise SystemExit(main())
