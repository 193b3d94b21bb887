"""A rollout that does not progress fails in time, and goes back to what served where that is asked for."""

from typing import Any

import pytest
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.options import Options
from octavo.operator.planning.plan import Plan

DEADLINE_S = 1800.0


def service(on_failure: str = "pause", **spec: Any) -> TinyCluster:
    """A service that serves and is then given a bad image."""
    rollout = {"onFailure": on_failure, **spec.pop("rollout", {})}
    tiny = TinyCluster(resource(image="good", rollout=rollout, **{"replicas": 2, **spec}))
    tiny.settle()
    tiny.edit(image="bad")
    tiny.settle()
    return tiny


def past_the_deadline(tiny: TinyCluster) -> Plan:
    tiny.now += DEADLINE_S
    planned = tiny.reconcile()
    tiny.settle()
    return planned


def test_a_rollout_is_overdue_when_no_further_group_has_served_in_time() -> None:
    tiny = service()
    started = tiny.now
    wait_s = tiny.reconcile().requeue_after
    assert wait_s is not None and DEADLINE_S - 60 <= wait_s <= DEADLINE_S + 1
    assert tiny.condition("Progressing")["reason"] == "RollingOut"
    planned = past_the_deadline(tiny)
    found = tiny.condition("Progressing")
    assert (found["status"], found["reason"]) == ("False", "DeadlineExceeded")
    assert tiny.condition("Degraded")["reason"] == "DeadlineExceeded"
    assert [event.reason for event in planned.events if event.type == "Warning"].count("DeadlineExceeded") >= 1
    assert "DeadlineExceeded" not in [event.reason for event in tiny.reconcile().events], "it is said once"
    assert tiny.images() == ["good", "good", "bad"] and tiny.now > started


def test_each_group_that_serves_gives_the_rollout_its_time_again() -> None:
    tiny = service(replicas=3)
    tiny.edit(image="better")
    for _ in range(60):
        tiny.now += DEADLINE_S / 8
        tiny.reconcile()
        assert tiny.condition("Progressing")["reason"] != "DeadlineExceeded"
        tiny.advance(lambda events: events[0])
    assert tiny.images() == ["better"] * 3


def test_a_rollout_that_has_completed_is_never_overdue() -> None:
    tiny = service()
    tiny.edit(image="good")
    tiny.settle()
    tiny.blip("chat-0")
    past_the_deadline(tiny)
    tiny.break_for_good("chat-0")
    tiny.edit(replicas=3)
    past_the_deadline(tiny)
    assert tiny.condition("Progressing")["reason"] not in ("DeadlineExceeded", "RolledBack")


def test_while_no_groups_are_desired_no_time_passes() -> None:
    tiny = service()
    tiny.edit(paused=True)
    tiny.settle()
    past_the_deadline(tiny)
    assert tiny.condition("Progressing")["reason"] != "DeadlineExceeded"
    tiny.edit(paused=False)
    tiny.settle()
    assert tiny.condition("Progressing")["reason"] != "DeadlineExceeded"
    past_the_deadline(tiny)
    assert tiny.condition("Progressing")["reason"] == "DeadlineExceeded"


def test_a_failed_rollout_goes_back_to_the_last_revision_that_served() -> None:
    tiny = service("rollback")
    good = tiny.revision_of("good")
    planned = past_the_deadline(tiny)
    assert "RolledBack" in [event.reason for event in planned.events if event.type == "Warning"]
    assert tiny.images() == ["good", "good"] and tiny.serving() == 2
    status = tiny.resource["status"]
    assert status["rollback"]["revision"] == good and status["revision"] == tiny.revision_of("bad")
    assert status["updatedReplicas"] == 0 and status["readyReplicas"] == 2
    for kind, value in (("Progressing", "False"), ("Degraded", "True")):
        found = tiny.condition(kind)
        assert (found["status"], found["reason"]) == (value, "RolledBack")
        assert good in found["message"] and status["revision"] in found["message"]
    assert tiny.condition("Ready")["status"] == "True"
    past_the_deadline(tiny)
    assert tiny.images() == ["good", "good"], "it stays there"


def test_a_rollback_brings_groups_of_the_kept_template_although_the_operator_has_another_image_now() -> None:
    tiny = TinyCluster(resource(replicas=2, rollout={"onFailure": "rollback"}), Options(worker_image="one"))
    tiny.settle()
    tiny.options = Options(worker_image="two")
    tiny.edit(image="bad")
    tiny.settle()
    past_the_deadline(tiny)
    tiny.edit(replicas=4)
    tiny.settle()
    assert tiny.images() == ["one"] * 4 and tiny.serving() == 4


def test_the_cause_of_a_rollback_is_kept_after_the_groups_are_gone() -> None:
    tiny = service("rollback")
    name = next(name for name in tiny.sets if tiny.image(name) == "bad")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    tiny.pods[f"{name}-0"]["status"]["containerStatuses"] = [{"image": "bad", "restartCount": 0, "state": waiting}]
    past_the_deadline(tiny)
    assert tiny.resource["status"]["rollback"]["reason"] == "ImagePullBackOff"
    assert "no such image" in tiny.condition("Degraded")["message"]
    del tiny.resource["status"]
    tiny.reconcile()
    assert "no such image" in tiny.resource["status"]["rollback"]["message"], "the record survives the status"


@pytest.mark.parametrize("again", [{"restartAt": "now"}, {"image": "bad-too"}, {"rollout": {"onFailure": "pause"}}])
def test_an_edit_that_makes_another_revision_ends_a_rollback_and_so_does_pause(again: dict[str, Any]) -> None:
    tiny = service("rollback")
    past_the_deadline(tiny)
    tiny.edit(**again)
    tiny.settle()
    assert "rollback" not in tiny.resource["status"]
    assert tiny.condition("Progressing")["reason"] == "RollingOut"
    assert tiny.images().count("good") == 2 and len(tiny.images()) == 3, "the desired revision is tried again"


@pytest.mark.parametrize("other", [{"replicas": 3}, {"router": {"replicas": 2}}, {"paused": True}])
def test_other_edits_leave_a_rollback_as_it_is(other: dict[str, Any]) -> None:
    tiny = service("rollback")
    past_the_deadline(tiny)
    tiny.edit(**other)
    tiny.settle()
    tiny.edit(paused=False)
    tiny.settle()
    assert set(tiny.images()) == {"good"} and tiny.condition("Progressing")["reason"] == "RolledBack"


def test_a_revision_that_was_rolled_back_is_tried_afresh_when_it_is_desired_again() -> None:
    tiny = service("rollback")
    past_the_deadline(tiny)
    tiny.edit(image="good")
    tiny.settle()
    assert tiny.condition("Progressing")["reason"] == "Complete" and "rollback" not in tiny.resource["status"]
    tiny.edit(image="bad")
    tiny.settle()
    assert tiny.condition("Progressing")["reason"] == "RollingOut" and tiny.images().count("bad") == 1


def test_a_rollback_prefers_a_revision_of_which_all_groups_served() -> None:
    tiny = service("rollback", rollout={"maxSurge": 1, "maxUnavailable": 0})
    tiny.edit(image="half")
    while not any(tiny.image(name) == "half" for name in tiny.groups_serving()):
        tiny.reconcile()
        tiny.advance(lambda events: events[0])
    tiny.reconcile()
    tiny.edit(image="bad")
    tiny.settle()
    past_the_deadline(tiny)
    assert tiny.images() == ["good", "good"]


def test_without_a_revision_that_served_there_is_nothing_to_go_back_to() -> None:
    tiny = TinyCluster(resource(image="bad", rollout={"onFailure": "rollback"}))
    tiny.settle()
    past_the_deadline(tiny)
    assert tiny.condition("Progressing")["reason"] == "DeadlineExceeded" and tiny.images() == ["bad"]


def test_a_rollback_does_not_bring_back_a_host_folder_that_the_operator_forbids_now() -> None:
    folder = {"model": {"uri": "file:///data/model"}, "rollout": {"onFailure": "rollback"}}
    tiny = TinyCluster(resource(image="good", **folder), Options(host_path_allow=("/data",)))
    tiny.settle()
    tiny.options = Options()
    tiny.edit(model={"uri": "bundled://x"}, image="bad")
    tiny.settle()
    past_the_deadline(tiny)
    assert "rollback" not in tiny.resource["status"]
    tiny.edit(replicas=3)
    tiny.settle()
    assert tiny.images().count("good") == 1, "nor does it create more of them"
