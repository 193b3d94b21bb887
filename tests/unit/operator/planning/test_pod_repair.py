"""Pods go one by one only where their group cannot mend itself."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.cluster.services import condition, pod, service

from octavo.operator.groups.groups import Group, timestamp
from octavo.operator.groups.snapshot import LostNode
from octavo.operator.planning.pod_repair import PodJudge

Json = dict[str, Any]  # Any: Kubernetes JSON
STS: Json = {
    "metadata": {"name": "chat-0", "uid": "sts-uid", "generation": 2},
    "spec": {"replicas": 1},
    "status": {"observedGeneration": 2, "updateRevision": "new"},
}
HEALTHY: Mapping[str, LostNode] = {}
ENDS = 1_000_000.0  # 1970-01-12T13:46:40Z


def going() -> Json:
    found = pod("chat-0-0")
    found["metadata"] |= {"deletionTimestamp": "1970-01-12T13:46:40Z", "deletionGracePeriodSeconds": 120}
    return found


def of_template(revision: str, *conditions: Json) -> Json:
    found = pod("chat-0-0", conditions=list(conditions))
    found["metadata"]["labels"]["controller-revision-hash"] = revision
    return found


def judged(
    item: Json, now: float = 0.0, lost: Mapping[str, LostNode] = HEALTHY, live: Json | None = STS
) -> list[int | None]:
    return [found.grace_s for found in judge(lost).pods_to_delete([Group(0, live, (item,), None)], now)]


def judge(lost: Mapping[str, LostNode] = HEALTHY, **disruption: str) -> PodJudge:
    return PodJudge(lost, service(disruption=disruption).spec.disruption)


def test_a_pod_that_drains_is_left_to_drain() -> None:
    assert judged(going(), now=ENDS - 1) == []
    assert judge().next_check([Group(0, STS, (going(),), None)], ENDS - 1) == 21.0


def test_a_pod_on_a_node_that_is_not_known_to_be_lost_is_never_removed_by_force() -> None:
    """A process that hangs in a driver holds its GPU, which the scheduler would count as free."""
    group, waits = Group(0, STS, (going(),), None), []
    for overdue_s in (20, 100, 3600, 86_400):
        assert judged(going(), now=ENDS + overdue_s) == []
        (said,) = judge().events([group], ENDS + overdue_s)
        assert (said.type, said.reason) == ("Warning", "PodNotTerminating")
        assert "chat-0-0" in said.message and "node-1" in said.message
        waits.append(judge().next_check([group], ENDS + overdue_s))
    assert waits == [10.0, 50.0, 300.0, 300.0], "its node is looked at again, ever less often"
    assert list(judge().events([group], ENDS + 19)) == []


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        (LostNode("gone", 0.0), 20.0),
        (LostNode("unreachable", ENDS - 120 - 60), 20.0),
        (LostNode("unreachable", ENDS - 120 + 15), 25.0),
        (LostNode("not ready", ENDS - 120), 300.0),
    ],
)
def test_a_pod_on_a_lost_node_is_removed_by_force_once_the_node_has_been_lost_for_long(
    node: LostNode, seconds: float
) -> None:
    lost, at = {"node-1": node}, ENDS - 120 + seconds
    assert judged(going(), now=at - 1, lost=lost) == [] and judged(going(), now=at, lost=lost) == [0]
    group = Group(0, STS, (going(),), None)
    assert judge(lost).next_check([group], at - 7) == 7.0
    assert list(judge(lost).events([group], ENDS + 999)) == []


def test_how_long_a_node_has_been_lost_before_is_the_services() -> None:
    lost = {"node-1": LostNode("unreachable", ENDS)}
    patient, group = judge(lost, nodeLostAfter="10m"), Group(0, STS, (going(),), None)
    assert not patient.pods_to_delete([group], ENDS + 599) and patient.pods_to_delete([group], ENDS + 600)


def test_a_pod_that_a_finalizer_keeps_is_named_and_not_deleted_again() -> None:
    held = going()
    held["metadata"] |= {"deletionGracePeriodSeconds": 0, "finalizers": ["kueue.x-k8s.io/managed"]}
    group = Group(0, STS, (held,), None)
    for lost in (HEALTHY, {"node-1": LostNode("gone", 0.0)}):
        assert judge(lost).pods_to_delete([group], ENDS + 999) == ()
        assert judge(lost).next_check([group], ENDS + 999) is None, "its end is an event of the watch"
        (said,) = judge(lost).events([group], ENDS + 999)
        assert said.reason == "PodHeld" and "chat-0-0" in said.message and "kueue.x-k8s.io/managed" in said.message


def test_a_pod_orphaned_by_hand_is_drained() -> None:
    assert judged(pod("chat-0-0", owner=None), live=None) == [None]


def test_a_pod_of_another_template_goes_unless_it_serves() -> None:
    assert judged(of_template("old")) == [None]
    assert judged(of_template("new")) == []
    assert judged(of_template("old", condition("Ready", "True"))) == []


def test_a_pod_of_another_revision_than_its_group_goes_unless_it_serves() -> None:
    template = {"metadata": {"labels": {"octavo.dev/revision": "r2"}}, "spec": {}}
    pods = [pod(f"chat-0-{index}") for index in range(4)]
    for found, revision in zip(pods, ("r2", "r1", "r1", "r2"), strict=True):
        found["metadata"]["labels"]["octavo.dev/revision"] = revision
    pods[2]["status"]["conditions"] = [condition("Ready", "True")]
    gone = judge().pods_to_delete([Group(0, STS, tuple(pods), None, template)], 0.0)
    assert [(item.name, item.grace_s) for item in gone] == [("chat-0-1", None)]


def test_every_pod_of_a_group_that_is_on_a_lost_node_goes_and_the_others_stay() -> None:
    here, there, other = (going() for _ in range(3))
    for found, name, node in (
        (here, "chat-0-1", "node-1"),
        (there, "chat-0-2", "node-1"),
        (other, "chat-0-3", "node-2"),
    ):
        found["metadata"]["name"], found["spec"] = name, {"nodeName": node}
    group = Group(0, STS, (pod("chat-0-0"), here, there, other), None)
    gone = judge({"node-1": LostNode("gone", 0.0)}).pods_to_delete([group], ENDS - 100)
    assert [(item.name, item.grace_s) for item in gone] == [("chat-0-1", 0), ("chat-0-2", 0)]


def test_a_pod_that_serves_with_a_leader_that_is_gone_is_drained() -> None:
    at = [timestamp(ENDS + second) for second in (0, 10, 11)]

    def gone(*, leader_ready: bool = False, since: str = at[0], now: float = ENDS + 30) -> list[tuple[str, int | None]]:
        leader = pod("chat-0-0", conditions=[condition("Ready", str(leader_ready))])
        leader["metadata"]["creationTimestamp"] = at[1]
        leader["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = "0"
        other = pod("chat-0-1", conditions=[condition("Ready", "True", lastTransitionTime=since)])
        group = Group(0, STS, (leader, other), None)
        return [(item.name, item.grace_s) for item in judge().pods_to_delete([group], now)]

    assert gone() == [("chat-0-1", None)]
    assert gone(now=ENDS + 29) == []
    assert gone(since=at[2]) == []
    assert gone(leader_ready=True) == []


def test_a_template_that_the_controller_has_not_seen_judges_no_pod() -> None:
    unseen = {**STS, "metadata": {**STS["metadata"], "generation": 3}}
    assert judged(of_template("old"), live=unseen) == []


def test_pods_whose_statefulset_is_not_seen_hold_back_new_groups() -> None:
    assert Group(0, None, (pod("chat-0-0"),), None).owner_unknown
    assert not Group(0, None, (going(),), None).owner_unknown
    assert not Group(0, STS, (pod("chat-0-0"),), None).owner_unknown
