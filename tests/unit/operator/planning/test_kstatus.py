"""Flux, Argo CD and `kubectl wait` read the truth at each moment of a service: create, edit, scale, failure, repair."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.kstatus import kstatus, waited_for
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.api.schema import service_schema
from octavo.operator.api.v1alpha1 import SpecError, parse
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.unplanned import plan_invalid


def cluster(**spec: object) -> TinyCluster:
    tiny = TinyCluster(resource(image="good", **spec))
    tiny.slow_routers = True
    return tiny


def settled(**spec: object) -> TinyCluster:
    tiny = cluster(**spec)
    tiny.settle()
    assert kstatus(tiny.resource) == "Current"
    return tiny


def seen(tiny: TinyCluster) -> tuple[str, bool]:
    """(kstatus, whether `kubectl wait --for=condition=Ready` returns) after a look of the operator."""
    tiny.reconcile()
    return kstatus(tiny.resource), waited_for(tiny.resource, "Ready")


def of_present_spec(tiny: TinyCluster) -> bool:
    """A group of the present spec's revision serves, and a router of its configuration is ready."""
    made = tiny.resource["status"]["revision"]
    assert tiny.router is not None
    router = tiny.router["metadata"]["labels"]["octavo.dev/revision"]
    serves = any(
        item["metadata"]["labels"]["octavo.dev/revision"] == made
        and all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
            for pod in tiny.pods_of(name)
        )
        and len(tiny.pods_of(name)) == item["spec"]["replicas"] > 0
        for name, item in tiny.sets.items()
    )
    routers = [pod["metadata"]["labels"]["octavo.dev/revision"] for pod in tiny.routers.values()]
    return serves and router in routers


EDITS = {
    "nothing": {},
    "another image": {"image": "better"},
    "more groups": {"replicas": 3},
    "fewer groups": {"replicas": 1},
    "another shape": {"parallelism": {"pipeline": 2}},
    "a setting of routers": {"router": {"strict": True}},
    "more routers": {"router": {"replicas": 2}},
    "groups and routers": {"image": "better", "router": {"replicas": 2, "strict": True}},
    "another port": {"router": {"service": {"port": 8080}}},
}


def test_a_new_service_is_in_progress_until_it_serves() -> None:
    tiny = cluster(replicas=2)
    tiny.resource["status"] = service_schema()["properties"]["status"]["default"]
    assert kstatus(tiny.resource) == "InProgress", "as the API server has it before the operator's first look"
    while tiny.serving() < 2 or not tiny.routers:
        assert seen(tiny)[0] == "InProgress"
        tiny.advance(lambda events: events[0])
    assert seen(tiny) == ("Current", True)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_in_progress_until_all_is_of_it(edit: str) -> None:
    tiny = settled(replicas=2)
    tiny.edit(**EDITS[edit])
    assert kstatus(tiny.resource) == "InProgress" and not waited_for(tiny.resource, "Ready"), "not observed yet"
    for _ in range(60):
        status, waits_no_more = seen(tiny)
        assert waits_no_more is of_present_spec(tiny), "Ready and its generation speak of pods of the present spec"
        if not tiny.possible():
            break
        assert edit in ("nothing", "another port") or status == "InProgress"
        tiny.advance(lambda events: events[0])
    assert seen(tiny) == ("Current", True)


def test_ready_stays_true_for_the_generation_before_while_an_edit_is_under_way() -> None:
    tiny = settled()
    tiny.edit(image="better")
    tiny.reconcile()
    ready = next(c for c in tiny.resource["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["observedGeneration"]) == ("True", 1), "the earlier group still answers"
    assert tiny.resource["status"]["observedGeneration"] == 2


def test_an_edit_that_is_taken_back_is_current_again() -> None:
    tiny = settled()
    tiny.edit(image="bad")
    for _ in range(8):
        assert seen(tiny)[0] == "InProgress" and not waited_for(tiny.resource, "Ready")
        tiny.advance(lambda events: events[0]) if tiny.possible() else None
    tiny.edit(image="good")
    tiny.settle()
    assert seen(tiny) == ("Current", True)


def test_a_cause_that_only_a_change_removes_is_a_failure_and_its_repair_is_seen() -> None:
    tiny = settled()
    tiny.edit(image="bad")
    tiny.reconcile()
    tiny.advance(lambda events: "make chat-1-0")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    tiny.pods["chat-1-0"]["status"]["containerStatuses"] = [{"image": "bad", "state": waiting}]
    assert seen(tiny) == ("Failed", False)
    tiny.edit(image="good")
    tiny.settle()
    assert seen(tiny) == ("Current", True)


def test_a_group_that_starts_again_by_itself_is_in_progress() -> None:
    tiny = settled(replicas=2)
    pod = tiny.pods["chat-1-0"]
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": "Traceback"}}
    pod["status"]["containerStatuses"] = [{"restartCount": 1, "state": {"waiting": {}}, "lastState": ended}]
    assert seen(tiny) == ("InProgress", True), "the other group answers"
    pod["status"]["conditions"].append({"type": "Ready", "status": "True"})
    assert seen(tiny) == ("Current", True)


def test_a_service_without_groups_is_in_progress_for_as_long_as_it_is_paused() -> None:
    tiny = settled()
    tiny.edit(paused=True)
    tiny.settle()
    assert seen(tiny) == ("InProgress", False)


def test_a_spec_that_cannot_be_read_is_a_failure() -> None:
    broken = resource(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    with pytest.raises(SpecError) as caught:
        parse(broken)
    broken["status"] = plan_invalid(broken, caught.value, Snapshot(), 5.0).status
    assert kstatus(broken) == "Failed"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_ready_for_a_generation_is_never_said_of_pods_of_another(data: st.DataObject) -> None:
    tiny = settled(replicas=2)
    choose: Callable[[list[str]], str] = lambda events: data.draw(st.sampled_from(events))  # noqa: E731
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.integers(0, 4)) == 0:
            tiny.edit(**EDITS[data.draw(st.sampled_from(sorted(EDITS)))])
        if data.draw(st.booleans()):
            tiny.advance(choose)
        _, waits_no_more = seen(tiny)
        assert not waits_no_more or of_present_spec(tiny)
