"""The router's recipes in CONTRIBUTING.md work: each is followed in a copy of the tree, in the files that it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "operator", "router", "worker", "kernels", "proto")

POLICY = '''"""Routing policy: the last group. Pure."""

from collections.abc import Sequence

from octavo.router.dispatch.policies.candidate import Candidate


def choose(prompt_tokens: int, candidates: Sequence[Candidate]) -> int:
    """Index of the last candidate."""
    return len(candidates) - 1
'''
# From the resource to the function that the router process calls.
CHOOSES_A_POLICY = """
from octavo.operator.api.schema import crd_schema
from octavo.router.dispatch.policies.registry import policy

schema = crd_schema()["properties"]["spec"]["properties"]["router"]["properties"]["policy"]
assert "last-group" in schema["enum"] and "the last group of the list" in schema["description"]
assert "--policy=last-group" in planned({"policy": "last-group"})
for argv in (planned({"policy": "last-group"}), run("--policy", "last-group"), run_file({"policy": "last-group"})):
    assert policy(router(argv).settings.policy)(9, [None] * 4) == 3
"""
# What an operator, a router and `octavo run` make of spec.router.
CHAIN = """
import json, sys
from pathlib import Path
import octavo.shared

tree = Path(sys.argv[1])
assert Path(octavo.shared.__file__).is_relative_to(tree), octavo.shared.__file__

from octavo.local import commands, flags
from octavo.operator.api.v1alpha1 import parse
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan
from octavo.router.process.config import parse_arguments


def resource(router):
    spec = {"model": {"uri": "bundled://smollm2-135m-instruct"}, "router": router}
    metadata = {"name": "chat", "namespace": "default", "uid": "u", "generation": 1}
    return {"apiVersion": "octavo.dev/v1alpha1", "kind": "InferenceService", "metadata": metadata, "spec": spec}


def planned(router):
    objects = [item.object for item in plan(parse(resource(router)), Snapshot(), Options(), 0.0).apply]
    (made,) = [object for object in objects if object["kind"] == "Deployment"]
    return made["spec"]["template"]["spec"]["containers"][0]["args"]


def run(*given):
    return commands.router_argv(flags.parse_args(["--device", "cpu", *given]), 8000, None, [])[1:] + ["--group=unix:/x"]


def run_file(router):
    file = tree / "service.yaml"
    file.write_text(json.dumps(resource(router)))
    return run("-f", str(file))


def router(argv):
    return parse_arguments([flag for flag in argv if not flag.startswith("--tls-dir")] + ["--tls-dir=/"])
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the product's modules, compiled as they are here."""
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("lib", "csrc", "*.egg-info")
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignored)
    return tmp_path


def recipe(title: str) -> list[str]:
    """Paths that the recipe of CONTRIBUTING.md names, in its order."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split(f"**{title}**")[1].split("\n\n")[0]
    return re.findall(r"`([a-z_/A-Z]+\.py)`", text)


def follow(tree: Path, script: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", CHAIN + script, str(tree)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path}: {before!r}"
    path.write_text(text.replace(before, line + before))


def test_a_routing_policy_is_a_module_and_a_line(tree: Path) -> None:
    module, table = recipe("A routing policy")
    assert module == "router/dispatch/policies/NAME.py"
    (tree / module.replace("NAME", "last_group")).write_text(POLICY)
    insert(tree / table, '    "round-robin":', '    "last-group": "the last group of the list",\n')
    follow(tree, CHOOSES_A_POLICY)
