"""A group on a node that is drained goes when another one serves in its place, or when its time is up."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import resource, service
from support.cluster.tiny_cluster import NODES, TinyCluster

from octavo.operator.groups.groups import timestamp
from octavo.operator.groups.names import REVISION
from octavo.operator.planning.plan import plan

HAPPENINGS = ["look", "look", "event", "event", "event", "cordon", "uncordon", "drain", "blip"]
DEADLINE_S = 1800.0  # default of spec.rollout.progressDeadline


def cluster(replicas: int = 1, on_drain: str = "surge", **spec: Any) -> TinyCluster:  # Any: fields of the spec
    """Its groups serve, on the first node."""
    tiny = TinyCluster(resource(replicas=replicas, image="good", disruption={"onDrain": on_drain}, **spec))
    tiny.settle()
    assert tiny.serving() == replicas
    return tiny


def cordon(tiny: TinyCluster, node: str = NODES[0]) -> None:
    tiny.cordoned.add(node)


def deleted(tiny: TinyCluster) -> list[str]:
    return [gone.name for gone in tiny.reconcile().delete if gone.kind == "StatefulSet"]


def test_another_group_serves_before_the_one_on_the_cordoned_node_goes() -> None:
    tiny = cluster()
    assert not tiny.evict("chat-0-0"), "not even before the operator has seen the cordon"
    cordon(tiny)
    planned = tiny.reconcile()
    assert sorted(tiny.sets) == ["chat-0", "chat-1"] and not planned.delete
    (event,) = (item.event for item in planned.apply if item.event and item.event.reason == "GroupDraining")
    assert event.message == (
        "chat-0: node node-0 is cordoned: it is not evicted until another group serves in its place, or until "
        + timestamp(tiny.now + DEADLINE_S)
    )
    for step in ("make chat-1-0", "serve chat-1-0"):
        assert not deleted(tiny) and not tiny.evict("chat-0-0")
        assert tiny.condition("Progressing")["reason"] == "Draining"
        tiny.advance(lambda events, step=step: step)
    (gone,) = tiny.reconcile().delete
    assert (gone.name, gone.reason) == (
        "chat-0", "node node-0 is cordoned, and as many groups as desired serve elsewhere"
    )  # fmt: skip
    tiny.settle()
    assert tiny.groups_serving() == {"chat-1"} == tiny.taken() and not tiny.on(NODES[0])
    assert tiny.condition("Progressing")["reason"] == "Complete"


def test_with_evict_the_budget_lets_one_pod_go_and_no_group_is_added() -> None:
    tiny = cluster(2, on_drain="evict")
    cordon(tiny)
    tiny.reconcile()
    assert len(tiny.sets) == 2
    assert tiny.evict("chat-0-0") and not tiny.evict("chat-1-0")


def test_a_node_that_is_uncordoned_keeps_its_group() -> None:
    tiny = cluster()
    cordon(tiny)
    tiny.reconcile()
    tiny.cordoned.clear()
    assert deleted(tiny) == ["chat-1"]
    tiny.settle()
    assert tiny.groups_serving() == {"chat-0"}
    assert "octavo.dev/drain-since" not in tiny.sets["chat-0"]["metadata"]["annotations"]


def test_what_does_not_serve_in_time_blocks_no_drain() -> None:
    tiny = cluster(2)
    tiny.room = 2
    cordon(tiny)
    planned = tiny.reconcile()
    began = tiny.now
    assert planned.changes_after is not None and planned.changes_after <= DEADLINE_S + 1
    tiny.wait(DEADLINE_S - 10)
    tiny.reconcile()
    assert not tiny.evict("chat-0-0")
    tiny.now = began + DEADLINE_S - 1
    tiny.reconcile()
    assert tiny.condition("Progressing")["reason"] == "DrainOverdue"
    assert "which is drained" not in tiny.condition("Progressing")["message"]
    assert tiny.evict("chat-0-0") and not tiny.evict("chat-1-0"), "one at a time, as with evict"


def test_each_group_of_a_node_has_the_deadline_once_the_one_before_it_is_replaced() -> None:
    tiny = cluster(2)
    cordon(tiny)
    tiny.reconcile()
    tiny.wait(DEADLINE_S - 10)
    while len(tiny.sets) < 3 or tiny.serving() < 3:
        tiny.reconcile()
        tiny.advance(lambda events: events[0])
    assert deleted(tiny)
    tiny.wait(DEADLINE_S - 100)
    tiny.reconcile()
    (left,) = tiny.on(NODES[0])
    assert not tiny.evict(left)
    tiny.settle()
    assert tiny.serving() == 2 and not tiny.on(NODES[0])


def test_the_time_of_the_others_runs_on_while_a_replaced_group_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = cluster(2)
    cordon(tiny)
    monkeypatch.setattr(tiny, "delete_set", lambda name: None)  # a webhook refuses it
    while tiny.serving() < 3:
        tiny.reconcile()
        tiny.advance(lambda events: events[0])
    for _ in range(3):
        assert deleted(tiny) == ["chat-1"] and not tiny.evict("chat-0-0")
        tiny.wait(DEADLINE_S / 3)
    tiny.reconcile()
    assert tiny.evict("chat-0-0")


def test_the_time_of_the_others_is_written_once_for_each_group_that_goes() -> None:
    tiny = cluster(2)
    cordon(tiny)
    while tiny.serving() < 3:
        tiny.reconcile()
        tiny.advance(lambda events: events[0])
    (gone,) = deleted(tiny)
    (left,) = {"chat-0", "chat-1"} - {gone}
    times = []
    for _ in range(3):
        tiny.wait(10)
        tiny.reconcile()
        times.append(tiny.sets[left]["metadata"]["annotations"]["octavo.dev/drain-since"])
    assert len(set(times)) == 1 and times[0] > timestamp(tiny.now - 40)


def test_a_group_whose_template_is_lost_blocks_no_drain() -> None:
    tiny = cluster()
    (lost,) = [name for name in tiny.revisions if name.endswith(tiny.sets["chat-0"]["metadata"]["labels"][REVISION])]
    tiny.edit(image="bad")
    tiny.settle()
    del tiny.revisions[lost]
    tiny.reconcile()
    assert not tiny.evict("chat-0-0")
    cordon(tiny)
    tiny.reconcile()
    assert tiny.evict("chat-0-0")


def test_a_drain_needs_one_group_more_than_a_rollout_without_surge_allows() -> None:
    tiny = cluster(rollout={"maxSurge": 0, "maxUnavailable": 1})
    cordon(tiny)
    tiny.settle()
    assert tiny.groups_serving() == {"chat-1"} == set(tiny.sets)


def test_a_group_of_the_good_revision_is_replaced_by_its_like_while_a_rollout_is_stuck() -> None:
    tiny = cluster(2)
    tiny.edit(image="bad")
    tiny.settle()
    cordon(tiny)
    tiny.settle()
    assert sorted(tiny.images()) == ["bad", "good", "good"] and tiny.serving() == 2
    assert not [name for name in tiny.on(NODES[0]) if name.rpartition("-")[0] in tiny.groups_serving()]


def test_without_permission_to_read_nodes_groups_are_evicted_and_an_event_says_so() -> None:
    tiny = cluster()
    seen = replace(tiny.snapshot(), draining_nodes=None)
    planned = plan(service(replicas=1, image="good", disruption={"onDrain": "surge"}), seen, tiny.options, tiny.now)
    budgets = {item.object["metadata"]["name"]: item.object["spec"]["maxUnavailable"] for item in planned.apply
               if item.object["kind"] == "PodDisruptionBudget"}  # fmt: skip
    assert budgets == {"chat-workers": 1, "chat-router": 1}
    assert "NodesUnreadable" in [event.reason for event in planned.events]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), replicas=st.integers(1, 3), surge=st.integers(0, 2))
def test_no_drain_costs_a_group_that_serves_whatever_the_order(data: st.DataObject, replicas: int, surge: int) -> None:
    """Nodes are cordoned, uncordoned and drained, one at a time, and the replicas change; with blips of groups."""
    pods = data.draw(st.integers(1, 2))
    limits = {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}
    tiny = cluster(replicas, rollout=limits, parallelism={"pipeline": pods})
    for _ in range(data.draw(st.integers(5, 60))):
        before = tiny.groups_serving()
        match data.draw(st.sampled_from(HAPPENINGS)):
            case "look":
                gone = deleted(tiny)
                assert len(before - set(gone)) >= min(replicas, len(before)), "by our doing no serving group is missing"
            case "event":
                tiny.advance(lambda events: data.draw(st.sampled_from(events)))
            case "cordon":
                tiny.cordoned = {data.draw(st.sampled_from(NODES))}
            case "uncordon":
                tiny.cordoned.clear()
            case "drain":
                for node in tiny.cordoned:
                    for name in tiny.on(node):
                        serves = name.rpartition("-")[0] in tiny.groups_serving()
                        assert not tiny.evict(name) or not serves, "what serves is not evicted"
            case "blip" if before:
                tiny.blip(data.draw(st.sampled_from(sorted(before))))
        assert len(tiny.taken()) <= replicas + surge + 1
    tiny.settle()
    assert tiny.serving() == replicas == len(tiny.taken())
    assert not any(tiny.on(node) for node in tiny.cordoned)
