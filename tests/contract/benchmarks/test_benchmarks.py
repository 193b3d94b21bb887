"""Each benchmark explains itself: one that no longer imports is found here, not when its figures are needed."""

import os
import runpy
import sys
from pathlib import Path

import pytest
from support.processes.forked import Forked, preload

preload("torch")  # most of them import it
SCRIPTS = [
    path for path in sorted((Path(__file__).parents[3] / "benchmarks").glob("*.py")) if "__main__" in path.read_text()
]


def test_there_are_benchmarks() -> None:
    assert {"cpu.py", "router.py", "schedule.py"} <= {path.name for path in SCRIPTS}


def _as_script(argv: list[str]) -> int:
    """What `python SCRIPT ARGUMENT ...` does, in another folder."""
    folder, *sys.argv = argv
    os.chdir(folder)
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_benchmark_tells_its_arguments(script: Path, tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "empty"
    folder.mkdir()
    process = Forked(_as_script, [str(folder), str(script), "--help"], {"COLUMNS": "120"}, log)
    assert process.wait(240) == 0, log.read_text()
    assert log.read_text().startswith(f"usage: {script.name}") and list(folder.iterdir()) == []
