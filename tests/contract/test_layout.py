"""The repository's shape: what the packaging and a reader rely on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = ["kernels", "operator", "proto", "router", "worker"]
# A registry, which is for the machine or the builder to choose, and home folders; not a path that merely ends so.
PRIVATE = re.compile(r"(?i:index(?:[-_]url)?|goproxy)[ =]+[\"']?https?://|(?<![\w./}-])/(?:root|work)/")


def test_each_component_is_mounted_by_one_relative_link() -> None:
    links = {path.name: path.readlink().as_posix() for path in (ROOT / "src/octavo").iterdir() if path.is_symlink()}
    assert links == {name: f"../../{name}" for name in COMPONENTS}


def test_no_component_folder_can_shadow_a_module() -> None:
    assert [name for name in COMPONENTS if (ROOT / name / "__init__.py").exists()] == []


def test_the_standard_operator_module_survives_in_the_root() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.eq(1, 1))"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == "True", done.stderr


def test_operator_and_router_start_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import octavo.operator.main, octavo.router.main\n"
        "assert not [m for m in sys.modules if m.startswith(('octavo.worker', 'octavo.kernels'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_tree_names_no_registry_and_no_folder_of_one_machine() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = []
    for name in files.stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink() and path.suffix not in (".png", ".json"):
            found += [(name, mark.group()) for mark in PRIVATE.finditer(path.read_text(errors="ignore"))]
    assert found == []


# Spliced, or this file would be found.
LINES = ("--index" + "-url http://10.0.0.1", "INDEX" + "=https://pypi.org", "GO" + "PROXY=https://a", "cd /ro" + "ot/x")


@pytest.mark.parametrize("line", LINES)
def test_a_private_place_would_be_found(line: str) -> None:
    assert PRIVATE.search(line) and not PRIVATE.search("ARG INDEX= $BED/store/root/x")
