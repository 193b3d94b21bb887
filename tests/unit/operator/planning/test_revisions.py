"""The pod template of a revision is kept, and every pod of the revision is made of it."""

from typing import Any

import pytest
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.options import Options
from octavo.operator.planning.plan import Plan


def upgraded(**spec: Any) -> TinyCluster:
    """A service that serves, and then an operator of a newer release."""
    tiny = TinyCluster(resource(**spec), Options(worker_image="one", router_image="r-one"))
    tiny.settle()
    tiny.options = Options(worker_image="two", router_image="r-two")
    return tiny


@pytest.mark.parametrize(("away", "back"), [({"replicas": 0}, {"replicas": 1}), ({"paused": True}, {"paused": False})])
def test_zero_and_back_bring_the_same_image(away: dict[str, Any], back: dict[str, Any]) -> None:
    tiny = upgraded()
    tiny.edit(**away)
    tiny.settle()
    assert not tiny.sets
    tiny.edit(**back)
    tiny.settle()
    assert tiny.images() == ["one"] and tiny.serving() == 1


def test_an_edit_and_back_bring_the_same_image_and_routers_keep_theirs() -> None:
    tiny = upgraded()
    tiny.edit(engine={"prefixCaching": False}, router={"strict": True})
    tiny.settle()
    assert tiny.images() == ["two"] and router_image(tiny) == "r-two"
    tiny.edit(engine={}, router={})
    tiny.settle()
    assert tiny.images() == ["one"] and router_image(tiny) == "r-one"


def router_image(tiny: TinyCluster) -> str:
    assert tiny.router is not None
    return str(tiny.router["spec"]["template"]["spec"]["containers"][0]["image"])


def test_a_template_in_an_annotation_is_never_read() -> None:
    tiny = upgraded()
    forged = '{"metadata":{"labels":{}},"spec":{"containers":[{"name":"worker","image":"forged"}]}}'
    tiny.sets["chat-0"]["metadata"]["annotations"]["octavo.dev/pod-template"] = forged
    tiny.edit(replicas=2)
    tiny.settle()
    assert tiny.images() == ["one", "one"]


def test_a_template_that_cannot_be_used_is_deleted_and_rendered_again() -> None:
    tiny = TinyCluster(resource())
    tiny.settle()
    for item in tiny.revisions.values():
        item["data"] = {"spec": {}}
    tiny.edit(replicas=2)
    planned = tiny.reconcile()
    gone = [(item.name, item.reason) for item in planned.delete]
    assert len(gone) == 2 and all("cannot be used" in reason for _, reason in gone) and not tiny.revisions
    tiny.settle()
    assert len(tiny.revisions) == 2 and tiny.serving() == 2


def test_revisions_beyond_the_limit_go_and_used_ones_stay() -> None:
    tiny = TinyCluster(resource(image="good", rollout={"historyLimit": 2}))
    tiny.settle()
    for number in range(6):
        tiny.edit(image=f"bad-{number}", router={"queue": {"maxRequests": number + 1}})
        tiny.settle()
    kept = {tiny.template_image(name) for name in tiny.revisions if "-router-" not in name}
    assert kept == {"good", "bad-3", "bad-4", "bad-5"}
    assert sum("-router-" in name for name in tiny.revisions) == 3
    tiny.edit(rollout={"historyLimit": 0})
    tiny.settle()
    assert {tiny.template_image(n) for n in tiny.revisions if "-router-" not in n} == {"good", "bad-5"}


def budget(planned: Plan) -> list[dict[str, Any]]:
    found = next(item.object for item in planned.apply if item.object["metadata"]["name"] == "chat-workers"
                 and item.object["kind"] == "PodDisruptionBudget")  # fmt: skip
    return list(found["spec"]["selector"].get("matchExpressions", []))


def without(*groups: str) -> list[dict[str, Any]]:
    return [{"key": "octavo.dev/group", "operator": "NotIn", "values": list(groups)}]


def test_the_budget_leaves_out_a_surge_until_it_serves_and_a_group_that_drains() -> None:
    tiny = TinyCluster(resource(image="good", replicas=2))
    assert budget(tiny.reconcile()) == [], "where nothing serves there is nothing to evict"
    tiny.settle()
    assert budget(tiny.reconcile()) == []
    tiny.edit(image="better")
    assert budget(tiny.reconcile()) == without("2")
    tiny.advance(lambda events: "make chat-2-0")
    assert budget(tiny.reconcile()) == without("2")
    tiny.advance(lambda events: "serve chat-2-0")
    assert budget(tiny.reconcile()) == without("1"), "chat-2 serves, and chat-1 is replaced by it"
    tiny.settle()
    assert budget(tiny.reconcile()) == []
    tiny.blip("chat-0" if "chat-0" in tiny.sets else "chat-2")
    assert budget(tiny.reconcile()) == [], "a group that has served takes the eviction that there is"


def test_a_statefulset_without_its_labels_is_still_a_group_and_gets_them_back() -> None:
    tiny = TinyCluster(resource(image="good"))
    tiny.settle()
    labels = dict(tiny.sets["chat-0"]["metadata"]["labels"])
    tiny.sets["chat-0"]["metadata"]["labels"] = {}
    planned = tiny.reconcile()
    assert not [item for item in planned.delete if item.kind == "StatefulSet"] and tiny.serving() == 1
    assert tiny.sets["chat-0"]["metadata"]["labels"] == labels
