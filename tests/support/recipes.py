"""Follows a recipe of CONTRIBUTING.md in a copy of the tree, in the files that it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "operator", "router", "worker", "kernels", "proto")
# The copy is what is imported; `tree` is its path.
IN_THE_COPY = """
import sys
from pathlib import Path
import octavo.shared

tree = Path(sys.argv[1])
assert Path(octavo.shared.__file__).is_relative_to(tree), octavo.shared.__file__
"""


def copy_tree(folder: Path) -> Path:
    """A copy of the product's modules, compiled as they are here."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("lib", "csrc", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    return folder


def recipe(title: str) -> list[str]:
    """Paths that the recipe of CONTRIBUTING.md names, in its order."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split(f"**{title}**")[1].split("\n\n")[0]
    return re.findall(r"`([a-z_0-9/A-Z]+\.(?:py|proto|cu))`", text)


def follow(tree: Path, script: str) -> None:
    """Run a script against the copy; its assertions are the test's."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", IN_THE_COPY + script, str(tree)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def insert(path: Path, before: str, line: str) -> None:
    """Insert text before the only place that has `before`."""
    text = path.read_text()
    assert text.count(before) == 1, f"{path}: {before!r}"
    path.write_text(text.replace(before, line + before))
