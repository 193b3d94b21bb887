"""What a worker can report is what the operator knows, with what to do about it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from octavo.kernels.cuda.library import MissingKernels
from octavo.operator.planning.diagnosis import REPORTED
from octavo.worker import errors
from octavo.worker.config import ConfigError
from octavo.worker.ipc.process import PEER_LOST
from octavo.worker.lifecycle.incarnation import JOIN_REFUSED, POD_REPLACED
from octavo.worker.supervisor.failure import LEADER_LOST

WORKER = Path(__file__).parents[2] / "worker"
CHILDREN = ("Serve", "Core", "Rank")
PLACES = {"Fault": 0, "Verdict": 0, "ModelError": 0, "failure": 2, "_failure": 1, "Report": 0}  # the reason


def _said(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        given = [word.value for word in node.keywords if word.arg == "reason"]
        place = PLACES.get(name)
        if place is not None and len(node.args) > place:
            given.append(node.args[place])
        for value in given:
            yield from _texts(value)


def _texts(value: ast.expr) -> Iterator[str]:
    """A literal; or a child's name and a literal: f"{name.capitalize()}Stuck"."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        ending = value.values[-1]
        assert isinstance(ending, ast.Constant), ast.unparse(value)
        yield from (f"{child}{ending.value}" for child in CHILDREN)


def test_the_operator_knows_every_reason_that_a_worker_gives() -> None:
    said = {text for path in WORKER.rglob("*.py") for text in _said(ast.parse(path.read_text()))}
    said |= {errors.NOT_FOUND, errors.INVALID, errors.UNREADABLE, ConfigError.reason, MissingKernels.reason}
    said |= {PEER_LOST, POD_REPLACED, JOIN_REFUSED, LEADER_LOST}
    said |= {f"{child}Failed" for child in CHILDREN}  # process.run names any other exception so
    assert said == set(REPORTED)
