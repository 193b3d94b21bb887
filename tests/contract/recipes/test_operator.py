"""The operator's recipes in CONTRIBUTING.md work: each is followed in a copy of the tree, in the files it names."""

from pathlib import Path

import pytest
from support.recipes import copy_tree, follow, insert, recipe

CONDITION = '''"""Condition NothingDesired: no group is desired."""

from octavo.operator.planning.conditions.facts import Facts, Verdict


def verdict(facts: Facts) -> Verdict:
    if facts.goal.groups:
        return False, "GroupsDesired", f"{facts.goal.groups} desired"
    return True, "NoGroups", "none desired"
'''
# From the resource to its status.
HAS_A_CONDITION = """
import yaml

from octavo.operator.api import crd
from octavo.operator.api.v1alpha1 import parse
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan


def conditions(replicas, now, status=None):
    spec = {"model": {"uri": "bundled://smollm2-135m-instruct"}, "replicas": replicas}
    metadata = {"name": "chat", "namespace": "default", "uid": "u", "generation": 3}
    kind = {"apiVersion": "octavo.dev/v1alpha1", "kind": "InferenceService"}
    service = parse({**kind, "metadata": metadata, "spec": spec, "status": status or {}})
    return plan(service, Snapshot(), Options(), now).status


def found(status):
    (entry,) = [entry for entry in status["conditions"] if entry["type"] == "NothingDesired"]
    return entry


first = conditions(2, now=0.0)
assert [entry["type"] for entry in first["conditions"]].index("NothingDesired") == 5
assert found(first) == {
    "type": "NothingDesired",
    "status": "False",
    "observedGeneration": 3,
    "lastTransitionTime": "1970-01-01T00:00:00Z",
    "reason": "GroupsDesired",
    "message": "2 desired",
}
same, changed = conditions(1, 60.0, first), conditions(0, 60.0, first)
assert found(same)["message"] == "1 desired"
assert found(same)["lastTransitionTime"] == found(first)["lastTransitionTime"]
assert (found(changed)["status"], found(changed)["reason"]) == ("True", "NoGroups")
assert found(changed)["lastTransitionTime"] == "1970-01-01T00:01:00Z"

(version,) = yaml.safe_load(crd.text())["spec"]["versions"]
listed = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
assert "NothingDesired: no group is desired." in listed["description"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_tree(tmp_path)


def test_a_status_condition_is_a_module_and_a_line(tree: Path) -> None:
    module, table = recipe("A status condition")
    (tree / module.replace("NAME", "nothing_desired")).write_text(CONDITION)
    insert(tree / table, '    "Degraded":', '    "NothingDesired": "no group is desired",\n')
    follow(tree, HAS_A_CONDITION)
