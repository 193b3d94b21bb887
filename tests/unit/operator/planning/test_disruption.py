"""spec.disruption and spec.scheduling reach the pods of groups and routers, and the decisions about them."""

import math
from typing import Any

import pytest
from support.cluster.services import condition, pod, resource, service
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.groups import timestamp
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import LostNode, Snapshot
from octavo.operator.planning.plan import Plan, plan

Json = dict[str, Any]  # Any: Kubernetes JSON
PARTIAL_S = 1_000_000.0


def pods(**spec: Any) -> dict[str, Json]:
    made = plan(service(**spec), Snapshot(), Options(), 0.0).apply
    kinds = {"StatefulSet": "worker", "Deployment": "router"}
    return {
        kinds[item.object["kind"]]: item.object["spec"]["template"]["spec"]
        for item in made
        if item.object["kind"] in kinds
    }


def stays(pod: Json) -> dict[str, int]:
    return {entry["key"].partition("/")[2]: entry.get("tolerationSeconds") for entry in pod["tolerations"]}


def test_the_fields_reach_the_pods_and_the_processes_in_them() -> None:
    for made in pods(disruption={"gracePeriod": "20m", "notReadyAfter": "10m", "nodeLostAfter": "1h"}).values():
        assert made["terminationGracePeriodSeconds"] == 1200
        assert "--grace-period=1200" in made["containers"][0]["args"]
        assert stays(made) == {"not-ready": 600, "unreachable": 3600}


def test_by_default_a_node_that_is_not_ready_for_a_moment_evicts_nothing() -> None:
    for made in pods().values():
        assert made["terminationGracePeriodSeconds"] == 120
        assert stays(made) == {"not-ready": 300, "unreachable": 10}, "Kubernetes' default is 300 for both"


@pytest.mark.parametrize("key", ["node.kubernetes.io/unreachable", None])
def test_a_users_toleration_of_the_same_taint_is_not_cut_short(key: str | None) -> None:
    toleration = {"operator": "Exists", "effect": "NoExecute", **({"key": key} if key else {})}
    found = pods(accelerator={"tolerations": [toleration, {"key": "gpu", "operator": "Exists"}]})["worker"][
        "tolerations"
    ]
    assert toleration in found and {"key": "gpu", "operator": "Exists"} in found
    seconds = [entry.get("tolerationSeconds") for entry in found]
    assert seconds == ([300, None, None] if key else [None, None])


def partial(autoscaled: bool, **scheduling: str) -> Plan:
    """After a year in which one of the group's two pods had no node."""
    tiny = TinyCluster(resource(parallelism={"pipeline": 2}, scheduling=scheduling), room=1)
    tiny.reconcile()
    placed = condition("PodScheduled", "True")
    lacks = condition("PodScheduled", "False", reason="Unschedulable", lastTransitionTime=timestamp(PARTIAL_S))
    found = [
        pod(f"chat-0-{index}", owner=tiny.sets["chat-0"]["metadata"]["uid"], conditions=[state])
        for index, state in enumerate((placed, lacks))
    ]
    seen = tiny.snapshot()
    snapshot = Snapshot(
        statefulsets=seen.statefulsets, revisions=seen.revisions, pods=tuple(found), autoscaled=autoscaled
    )
    return plan(service(parallelism={"pipeline": 2}, scheduling=scheduling), snapshot, Options(), PARTIAL_S + 3e7)


def backs_off(planned: Plan) -> bool:
    return any(item.event and item.event.reason == "GangBackoff" for item in planned.apply)


def test_a_group_keeps_its_nodes_beside_an_autoscaler_unless_the_service_says_otherwise() -> None:
    assert backs_off(partial(autoscaled=False))
    assert not backs_off(partial(autoscaled=True))
    assert partial(autoscaled=True).changes_after is None or math.isfinite(
        partial(autoscaled=True).changes_after or 0.0
    )
    assert backs_off(partial(autoscaled=True, gangBackoffAfter="20m"))
    assert not backs_off(partial(autoscaled=False, gangBackoffAfter="never"))


def test_a_plan_for_a_pod_that_does_not_end_warns_and_deletes_nothing_by_force() -> None:
    held = pod("chat-0-0")
    held["metadata"] |= {"deletionTimestamp": timestamp(PARTIAL_S), "deletionGracePeriodSeconds": 120}
    planned = plan(service(), Snapshot(pods=(held,)), Options(), PARTIAL_S + 3600)
    assert planned.delete_pods == () and planned.changes_after == 300.0
    assert "PodNotTerminating" in [event.reason for event in planned.events]
    lost = Snapshot(pods=(held,), lost_nodes={"node-1": LostNode("gone", 0.0)})
    assert [item.grace_s for item in plan(service(), lost, Options(), PARTIAL_S + 3600).delete_pods] == [0]
