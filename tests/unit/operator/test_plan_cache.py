"""No plan is made where nothing is new, and one is made in time where only the time matters."""

from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.snapshot import LostNode, Snapshot
from octavo.operator.plan_cache import MAX_UNREADY_S, UNREADY_S, CachedPlan
from octavo.operator.planning.actions import Plan

POD = {"metadata": {"name": "chat-0-0", "resourceVersion": "1"}}
RESOURCE = {"metadata": {"name": "chat"}}


def _rest(**plan: float) -> CachedPlan:
    return CachedPlan.after(Plan(**plan), RESOURCE, Snapshot(pods=(POD,)), 100.0)  # type: ignore[arg-type]


def test_nothing_new_needs_no_plan() -> None:
    again = _rest(poll_after=2.0).plan(RESOURCE, Snapshot(pods=(POD,)), 110.0)
    assert again is not None and again.apply == () and again.status is None
    assert again.requeue_after == 2.0, "a pod that runs and does not serve is asked on"


def test_a_new_version_of_anything_needs_one() -> None:
    cached = _rest()
    assert cached.plan(dict(RESOURCE), Snapshot(pods=(POD,)), 110.0) is None
    newer = {"metadata": {**POD["metadata"], "resourceVersion": "2"}}
    for snapshot in (
        Snapshot(pods=(newer,)),
        Snapshot(pods=(POD, newer)),
        Snapshot(pods=(POD,), children=(newer,)),
        Snapshot(pods=(POD,), lost_nodes={"node1": LostNode("gone", 0.0)}),
        Snapshot(pods=(POD,), autoscaled=True),
        Snapshot(pods=(POD,), foreign=frozenset({("Service", "chat")})),
    ):
        assert cached.plan(RESOURCE, snapshot, 110.0) is None


def test_what_the_time_alone_changes_is_planned_at_that_time() -> None:
    cached = _rest(changes_after=30.0)
    early = cached.plan(RESOURCE, Snapshot(pods=(POD,)), 129.0)
    assert early is not None and early.requeue_after == 1.0
    assert cached.plan(RESOURCE, Snapshot(pods=(POD,)), 130.0) is None


def test_a_plan_is_made_now_and_then_all_the_same() -> None:
    assert _rest().plan(RESOURCE, Snapshot(pods=(POD,)), 100.0 + 3600) is None


def test_looks_at_a_service_that_is_not_ready_become_rare() -> None:
    cached = _rest()
    waits = [cached.next_unready_s() for _ in range(8)]
    assert waits[0] < 1.2 * UNREADY_S and waits[2] > 1.5 * waits[0]
    assert max(waits) < 60.0 and waits[-1] > 0.8 * MAX_UNREADY_S


def test_a_pod_that_serves_with_a_leader_of_before_is_looked_at_in_time() -> None:
    tiny = TinyCluster(resource(parallelism={"pipeline": 2}))
    tiny.settle()
    leader, other = tiny.pods["chat-0-0"], tiny.pods["chat-0-1"]
    leader["metadata"]["creationTimestamp"] = "1970-01-12T13:46:40Z"  # 1,000,000
    leader["status"]["conditions"] = []
    other["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-12T13:40:00Z"}]
    tiny.now = 1_000_009.0
    planned = tiny.reconcile()
    assert planned.delete_pods == () and planned.changes_after == 10.0
    tiny.now += 10.0
    assert [gone.name for gone in tiny.reconcile().delete_pods] == ["chat-0-1"]
