"""The release before this one, as this repository's history has it: its processes beside this tree's.

That is the newest tag before HEAD, or else the commit before HEAD. Its kernels are not compiled: PyTorch's do.
"""

import io
import os
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
from support.processes.forked import Main

ROOT = Path(__file__).parents[3]


def earlier(folder: Path) -> Main:
    """What runs `octavo` of the earlier release, of which the tree is written into the folder. Skips the test where
    there is no history, as in an archive; fails it where OCTAVO_REQUIRE_BED=1 says that there must be one."""
    commit = _git("describe", "--tags", "--abbrev=0", "HEAD^") or _git("rev-parse", "--verify", "HEAD^")
    if not commit:
        why = "no earlier release: this is no git repository, or its history ends here"
        if os.environ.get("OCTAVO_REQUIRE_BED") == "1":
            pytest.fail(why)
        pytest.skip(why)
    made = subprocess.run(["git", "archive", commit.decode().strip()], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="tar")
    return partial(_run, folder)


def _git(*arguments: str) -> bytes:
    """What it prints; nothing if it fails or is missing."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""


def _run(folder: Path, argv: list[str]) -> int:
    """Becomes `octavo ARGV` of the tree."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    os.execve(sys.executable, [sys.executable, "-m", "octavo", *argv], environment)
