"""What `kubectl get` shows: ready of desired groups, the cause while something is stuck, the model that is served."""

from typing import Any

import pytest
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.api.crd import crd
from octavo.operator.groups.snapshot import GroupReport, ModelInfo, Snapshot
from octavo.operator.planning.status import reason
from octavo.operator.planning.unplanned import plan_invalid

Json = dict[str, Any]  # Any: Kubernetes JSON


def status(tiny: TinyCluster) -> Json:
    return dict(tiny.reconcile().status or {})


def up_to_date(one: Json) -> tuple[str, str]:
    found = next(entry for entry in one["conditions"] if entry["type"] == "UpToDate")
    assert found["observedGeneration"] == one["observedGeneration"]
    return found["status"], found["reason"]


def test_columns_show_ready_of_desired_updated_groups_the_reason_and_the_served_model() -> None:
    (version,) = crd()["spec"]["versions"]
    columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert columns == {
        "Ready": ".status.ready",
        "Updated": ".status.updatedReplicas",
        "Reason": ".status.reason",
        "Model": ".status.model.uri",
        "URL": ".status.url",
        "Age": ".metadata.creationTimestamp",
    }
    fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert (
        fields["ready"]["type"] == fields["reason"]["type"] == fields["model"]["properties"]["uri"]["type"] == "string"
    )


def test_a_change_that_is_stuck_shows_its_cause_and_the_model_that_is_still_served() -> None:
    tiny = TinyCluster(resource(replicas=2, model={"uri": "pvc://models/first"}, image="good"))
    assert status(tiny)["ready"] == "0/2"
    tiny.settle()
    served = status(tiny)
    assert (served["ready"], served["updatedReplicas"], served["reason"]) == ("2/2", 2, "Serving")
    assert served["model"]["uri"] == "pvc://models/first"
    tiny.edit(model={"uri": "pvc://models/second"}, image="bad")
    tiny.reconcile()
    tiny.advance(lambda events: next(event for event in events if event.startswith("make")))
    (new,) = [pod for name, pod in tiny.pods.items() if name.startswith("chat-2")]
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    new["status"]["containerStatuses"] = [{"image": "bad", "restartCount": 0, "state": {"waiting": waiting}}]
    stuck = status(tiny)
    assert (stuck["ready"], stuck["updatedReplicas"], stuck["reason"]) == ("2/2", 1, "ImagePullBackOff")
    assert stuck["model"]["uri"] == "pvc://models/first"
    assert up_to_date(stuck) == ("False", "ImagePullBackOff")


def test_the_model_is_that_of_most_serving_groups_with_its_facts() -> None:
    tiny = TinyCluster(resource(replicas=1, model={"uri": "pvc://models/first"}))
    tiny.settle()
    tiny.edit(model={"uri": "pvc://models/second"})
    seen = []
    for _ in range(20):
        seen.append(status(tiny)["model"]["uri"])
        tiny.advance(lambda events: events[0])
    assert seen == sorted(seen) and set(seen) == {"pvc://models/first", "pvc://models/second"}


def test_a_condition_says_when_a_change_is_complete_and_not_before() -> None:
    """What `kubectl wait --for=condition=UpToDate` waits for: it also compares observedGeneration."""
    tiny = TinyCluster(resource(replicas=2))
    assert up_to_date(status(tiny))[0] == "False"
    tiny.settle()
    assert up_to_date(status(tiny)) == ("True", "Complete")
    tiny.edit(engine={"maxRequests": 3})
    for _ in range(60):
        done = up_to_date(status(tiny))[0] == "True"
        revisions = {item["metadata"]["labels"]["octavo.dev/revision"] for item in tiny.sets.values()}
        assert not done or (tiny.serving() == 2 and len(revisions) == 1 and len(tiny.taken()) == 2)
        if done:
            return
        tiny.advance(lambda events: events[0])
    raise AssertionError("the change never ends")


@pytest.mark.parametrize("remaining", ["the new one, not ready", "both", "none"])
def test_a_change_of_the_routers_is_complete_when_all_of_them_are_replaced(remaining: str) -> None:
    tiny = TinyCluster(resource())
    tiny.settle()
    assert up_to_date(status(tiny))[0] == "True"
    tiny.slow_routers = True
    tiny.edit(router={"strict": True})
    assert up_to_date(status(tiny)) == ("False", "RollingOut"), "the router is of the earlier revision"
    earlier = dict(tiny.routers)
    tiny.advance(lambda events: events[0])
    (new,) = [name for name in tiny.routers if name not in earlier]
    present = tiny.routers[new]
    tiny.routers = {
        "the new one, not ready": {new: {**present, "status": {"phase": "Running"}}},
        "both": {**earlier, new: present},
        "none": {},
    }[remaining]
    assert up_to_date(status(tiny)) == ("False", "RollingOut")
    tiny.routers = {new: present}
    assert up_to_date(status(tiny)) == ("True", "Complete")


@pytest.mark.parametrize(
    ("degraded", "ready", "progressing", "expected"),
    [
        ("True", "False", "False", "D"),
        ("True", "True", "True", "D"),
        ("False", "False", "True", "R"),
        ("False", "True", "True", "P"),
        ("False", "True", "False", "R"),
    ],
)
def test_the_reason_is_that_of_the_most_serious_condition(
    degraded: str, ready: str, progressing: str, expected: str
) -> None:
    found = [("Ready", ready, "R"), ("Progressing", progressing, "P"), ("Degraded", degraded, "D")]
    assert reason({"type": kind, "status": value, "reason": why} for kind, value, why in found) == expected


def test_a_spec_that_cannot_be_read_is_the_reason() -> None:
    present = dict(plan_invalid(resource(), ValueError("spec.x: no"), Snapshot(), 0.0).status or {})
    assert present["reason"] == "InvalidSpec" and up_to_date(present) == ("False", "InvalidSpec")


def test_facts_of_the_model_are_kept_while_no_group_reports_them() -> None:
    tiny = TinyCluster(resource(model={"uri": "pvc://models/first"}))
    tiny.settle()
    report = GroupReport("r", "SERVING", model=ModelInfo(architecture="LlamaForCausalLM", context_length=9))
    tiny.reports[0] = report
    known = status(tiny)["model"]
    assert known == {"uri": "pvc://models/first", "architecture": "LlamaForCausalLM", "contextLength": 9}
    tiny.reports.clear()
    assert status(tiny)["model"] == known
