"""The release before this one, as this repository's history has it: its processes beside this tree's.

That is the newest tag v* before HEAD, or else the commit before HEAD. Its kernels are not compiled: PyTorch's do.
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
    there is no history: in an archive, in a clone of depth 1, or where git is missing or refuses the folder."""
    commit = earlier_commit(ROOT)
    if commit is None:
        pytest.skip("no earlier release: no git here, no repository of this tree, or its history ends here")
    made = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="tar")
    assert (folder / "src/octavo/__init__.py").exists(), f"{commit} has no octavo"
    return partial(_run, folder)


def earlier_commit(tree: Path) -> str | None:
    """None where the tree is no repository's own: another one, in which it may lie, has other releases."""
    top = _git(tree, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != tree.resolve():
        return None
    tag = _git(tree, "describe", "--tags", "--match", "v*", "--abbrev=0", "HEAD^")
    return tag or _git(tree, "rev-parse", "--verify", "HEAD^") or None


def _git(tree: Path, *arguments: str) -> str:
    """What it prints; nothing if it fails or is missing."""
    try:
        found = subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _run(folder: Path, argv: list[str]) -> int:
    """Becomes `octavo ARGV` of the tree."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    os.execve(sys.executable, [sys.executable, "-m", "octavo", *argv], environment)
