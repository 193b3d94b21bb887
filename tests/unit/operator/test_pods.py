"""Pods go one by one only where their group cannot mend itself."""

from typing import Any

from support.services import condition, pod

from octavo.operator.groups import Group
from octavo.operator.pods import next_check, pods_to_delete

Json = dict[str, Any]  # Any: Kubernetes JSON
STS: Json = {
    "metadata": {"name": "chat-0", "uid": "sts-uid", "generation": 2},
    "spec": {"replicas": 1},
    "status": {"observedGeneration": 2, "updateRevision": "new"},
}
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
    item: Json, now: float = 0.0, lost: frozenset[str] = frozenset(), live: Json | None = STS
) -> list[int | None]:
    return [found.grace_s for found in pods_to_delete([Group(0, live, (item,), None)], lost, now)]


def test_a_pod_that_drains_is_left_to_drain() -> None:
    assert judged(going(), now=ENDS - 1) == []
    assert next_check([Group(0, STS, (going(),), None)], frozenset(), ENDS - 1) == 21.0


def test_a_pod_that_is_overdue_is_removed_by_force() -> None:
    assert judged(going(), now=ENDS + 20) == [0]


def test_a_pod_on_a_node_that_is_known_to_be_lost_goes_after_twenty_seconds() -> None:
    lost = frozenset({"node-1"})
    assert judged(going(), now=ENDS - 120 + 19, lost=lost) == []
    assert judged(going(), now=ENDS - 120 + 20, lost=lost) == [0]


def test_a_pod_orphaned_by_hand_is_drained() -> None:
    assert judged(pod("chat-0-0", owner=None), live=None) == [None]


def test_a_pod_of_another_template_goes_unless_it_serves() -> None:
    assert judged(of_template("old")) == [None]
    assert judged(of_template("new")) == []
    assert judged(of_template("old", condition("Ready", "True"))) == []


def test_a_template_that_the_controller_has_not_seen_judges_nobody() -> None:
    unseen = {**STS, "metadata": {**STS["metadata"], "generation": 3}}
    assert judged(of_template("old"), live=unseen) == []


def test_pods_whose_statefulset_is_not_seen_hold_back_new_groups() -> None:
    assert Group(0, None, (pod("chat-0-0"),), None).unsettled
    assert not Group(0, None, (going(),), None).unsettled
    assert not Group(0, STS, (pod("chat-0-0"),), None).unsettled
