"""Each benchmark explains itself: one that no longer imports is found here, not by who wants a figure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = [
    path for path in sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py")) if "__main__" in path.read_text()
]


def test_there_are_benchmarks() -> None:
    assert {"cpu.py", "router.py", "schedule.py"} <= {path.name for path in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_benchmark_tells_its_arguments(script: Path, tmp_path: Path) -> None:
    environment = os.environ | {"COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script.name}") and list(tmp_path.iterdir()) == []
