"""The router's recipes in CONTRIBUTING.md work: each is followed in a copy of the tree, in the files that it names."""

from pathlib import Path

import pytest
from support.recipes import copy_tree, follow, insert, recipe

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
SETTING = """    toy_limit: int = _setting(
        7,
        Integer(1, 9),
        flag="toy-limit",
        help="toys that a router takes ({default})",
        path="queue.toyLimit",
        description="Maximum number of toys.",
        run="toys of a router",
    )
"""
# From the resource and the flags to the value that the router's code reads.
HAS_A_SETTING = """
import contextlib, io

import yaml

from octavo.operator.api import crd, settings_page
from octavo.operator.api.v1alpha1 import SpecError
from octavo.operator.groups.revision import router_revision


def help_of(parse_flags):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        parse_flags(["--help"])
    return " ".join(shown.getvalue().split())


def revision(queue):
    return router_revision(parse(resource({"queue": queue})))


assert "--toy-limit TOY_LIMIT toys that a router takes (7)" in help_of(parse_arguments)
assert "--toy-limit INT toys of a router [router.queue.toyLimit]" in help_of(flags.parse_args)
(version,) = yaml.safe_load(crd.text())["spec"]["versions"]
router_schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["router"]
field = router_schema["properties"]["queue"]["properties"]["toyLimit"]
assert field.items() >= {"type": "integer", "minimum": 1, "maximum": 9, "default": 7}.items(), field
assert field["description"] == "Maximum number of toys. Default: 7."
page = settings_page.updated(settings_page.BEGIN + settings_page.END)
assert "| `router.queue.toyLimit` | `--toy-limit` | `7` |" in page

assert "--toy-limit=8" in planned({"queue": {"toyLimit": 8}})
for argv in (planned({"queue": {"toyLimit": 8}}), run("--toy-limit", "8"), run_file({"queue": {"toyLimit": 8}})):
    assert router(argv).settings.toy_limit == 8
assert [router(argv).settings.toy_limit for argv in (planned({}), run(), ["--group=unix:/x"])] == [7, 7, 7]
assert revision({"toyLimit": 8}) != revision({}) == revision({"toyLimit": 7})
with contextlib.suppress(SpecError):
    parse(resource({"queue": {"toyLimit": 10}}))
    raise AssertionError("the bound is not checked")
"""
HAS_NO_FLAG_ON_ONE_MACHINE = """
assert "toy-limit" not in str(flags._parser().format_help())
assert router(run_file({"queue": {"toyLimit": 8}})).settings.toy_limit == 8
"""
# What an operator, a router and `octavo run` make of spec.router.
CHAIN = """
import json

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
    return copy_tree(tmp_path)


def test_a_routing_policy_is_a_module_and_a_line(tree: Path) -> None:
    module, table = recipe("A routing policy")
    assert module == "router/dispatch/policies/NAME.py"
    (tree / module.replace("NAME", "last_group")).write_text(POLICY)
    insert(tree / table, '    "round-robin":', '    "last-group": "the last group of the list",\n')
    follow(tree, CHAIN + CHOOSES_A_POLICY)


def test_a_router_setting_is_a_row(tree: Path) -> None:
    (table,) = recipe("A router setting")
    insert(tree / table, "    strict: bool", SETTING)
    follow(tree, CHAIN + HAS_A_SETTING)


def test_a_router_setting_without_a_text_for_octavo_run_has_no_flag_there(tree: Path) -> None:
    (table,) = recipe("A router setting")
    insert(tree / table, "    strict: bool", SETTING.replace('        run="toys of a router",\n', ""))
    follow(tree, CHAIN + HAS_NO_FLAG_ON_ONE_MACHINE)
