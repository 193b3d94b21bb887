"""Each component has one root of its errors, and draws their tree in the docstring of its errors.py."""

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = {
    "worker": "WorkerError", "router": "RouterError", "operator": "OperatorError", "kernels": "KernelsError",
    "src/octavo": "OctavoError",
}  # fmt: skip
ALONE = {"kernels": {"BuildError"}}  # build.py runs where the package is not installed
BUILTIN = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}


def _classes(component: str) -> Iterator[tuple[str, list[str]]]:
    """(name, names of the bases) of each class; src/octavo without the components that are linked into it."""
    folder = ROOT / component
    for path in sorted(folder.rglob("*.py")):
        parents = [parent for parent in path.parents if folder in parent.parents]
        if path.name.endswith(("_pb2.py", "_pb2_grpc.py")) or any(parent.is_symlink() for parent in parents):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def _errors(component: str) -> dict[str, set[str]]:
    """Each exception class with the names of all its ancestors; two of one name within a component are a fault."""
    bases = list(_classes(component))
    found: dict[str, set[str]] = {}
    while new := [
        (name, above)
        for name, above in bases
        if name not in found and any(one in BUILTIN or one in found for one in above)
    ]:
        for name, above in new:
            assert name not in found, f"{component} has two errors named {name}"
            found[name] = set(above).union(*(found.get(one, set()) for one in above))
    return found


@pytest.mark.parametrize("component", COMPONENTS)
def test_errors_have_one_root_that_draws_their_tree(component: str) -> None:
    root = COMPONENTS[component]
    errors = _errors(component)
    page = ast.get_docstring(ast.parse((ROOT / component / "errors.py").read_text()))
    assert page is not None
    drawn = re.findall(r"(?:├── |└── )(\w+)", page)
    expected = errors.keys() - {root} - ALONE.get(component, set())
    assert {name for name in expected if root not in errors[name]} == set()
    assert sorted(drawn) == sorted(expected)
