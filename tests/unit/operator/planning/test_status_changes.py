"""The log says what a write of the status changes."""

from typing import Any

from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.planning.status_changes import status_changes

Json = dict[str, Any]  # Any: Kubernetes JSON


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_conditions_fields_and_groups_that_differ_are_named() -> None:
    old = {
        "conditions": [
            condition("Ready", "False", "Loading", "chat-0: Loading 70 %"),
            condition("M", "True", "A", "x"),
        ],
        "readyReplicas": 0,
        "groups": [{"index": 0, "state": "Loading", "progress": 70}, {"index": 1, "state": "Serving", "restarts": 0}],
    }
    new = {
        "conditions": [condition("Ready", "True", "Serving", "1 group serves"), condition("M", "True", "A", "y")],
        "readyReplicas": 1,
        "url": "http://chat",
        "model": {"uri": "x"},
        "groups": [{"index": 0, "state": "Serving"}, {"index": 1, "state": "Serving", "restarts": 1}],
    }
    assert status_changes(old, new) == (
        "Ready=True/Serving, M: y, readyReplicas 0 -> 1, url none -> http://chat, model, "
        "group 0 Loading -> Serving, group 1 restarts"
    )
    assert status_changes(new, {**new, "groups": new["groups"][:1]}) == "group 1 is gone"
    assert status_changes(new, new) == ""


def test_every_status_of_a_start_changes_something_that_is_named() -> None:
    tiny = TinyCluster(resource(replicas=2))
    for _ in range(12):
        old = tiny.resource.get("status") or {}
        new = tiny.reconcile().status or {}
        assert (status_changes(old, new) == "") == (old == new)
        tiny.advance(lambda events: events[0])
