"""Folders are short enough to be read as a list, and each package says what runs in it."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = ("kernels", "operator", "router", "worker")
MOST = {"kernels": 15, "operator": 15, "proto": 15, "router": 15, "src": 15, "worker": 15, "tests": 25}  # by top folder
_SAYS = (r"\bProcess: ", r"\bIn( and out)?: ", r"\bImports: ")


def _modules() -> list[Path]:
    """Of the product and the tests, from the root on; generated ones are not for readers."""
    done = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in done.stdout.splitlines() if "_pb2" not in line]
    return [path for path in paths if path.parts[0] in MOST and (ROOT / path).is_file()]


PACKAGES = sorted(path for path in _modules() if path.name == "__init__.py" and path.parts[0] in COMPONENTS)


def crowded(modules: list[Path]) -> dict[str, int]:
    """Folders with more modules than a reader takes in."""
    counts = Counter(path.parent for path in modules)
    return {str(folder): count for folder, count in counts.items() if count > MOST[folder.parts[0]]}


def test_no_folder_holds_more_modules_than_a_reader_takes_in() -> None:
    modules = _modules()
    assert len(modules) > 500
    assert crowded(modules) == {}
    assert crowded([Path(f"worker/scheduler/m{n}.py") for n in range(16)]) == {"worker/scheduler": 16}


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent))
def test_a_package_says_its_process_its_input_its_output_and_its_imports(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text())
    text = ast.get_docstring(tree) or ""
    assert [mark for mark in _SAYS if not re.search(mark, text)] == []
    assert len(tree.body) == 1, "a package's own file holds its docstring only: import from its modules"


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_page_of_a_component_lists_its_packages(component: str) -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|", (ROOT / component / "README.md").read_text())
    assert sorted(rows) == sorted(
        path.parts[1] for path in PACKAGES if path.parts[0] == component and len(path.parts) == 3
    )
