"""Groups are replaced within bounds, whatever happens in whatever order."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.options import Options
from octavo.operator.groups.rollout import DOWN_S

BOUNDS = st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(lambda pair: sum(pair) > 0)


def cluster(image: str = "good", **spec: object) -> TinyCluster:
    return TinyCluster(resource(image=image, **spec))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), replicas=st.integers(1, 4), bounds=BOUNDS)
def test_a_rollout_keeps_its_bounds_and_ends_whatever_the_order(
    data: st.DataObject, replicas: int, bounds: tuple[int, int]
) -> None:
    surge, unavailable = bounds
    pods = data.draw(st.integers(1, 3))
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    tiny = cluster(replicas=replicas, rollout=limits, parallelism={"pipeline": pods})
    tiny.settle()
    assert tiny.serving() == replicas
    tiny.edit(image="better")
    for _ in range(data.draw(st.integers(5, 60))):
        if data.draw(st.booleans()):
            tiny.reconcile()
        else:
            tiny.advance(lambda events: data.draw(st.sampled_from(events)))
        assert tiny.serving() >= replicas - unavailable
        assert len(tiny.taken()) <= replicas + surge
    tiny.settle()
    assert tiny.images() == ["better"] * replicas
    assert tiny.serving() == replicas == len(tiny.taken())


@settings(max_examples=100, deadline=None)
@given(data=st.data(), bounds=BOUNDS)
def test_any_history_of_edits_and_accidents_ends_in_the_last_desired_state(
    data: st.DataObject, bounds: tuple[int, int]
) -> None:
    tiny = cluster(rollout={"maxSurge": bounds[0], "maxUnavailable": bounds[1]})
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(
            st.sampled_from(["look", "look", "event", "event", "image", "shape", "replicas", "paused", "pod", "set"])
        ):
            case "look":
                tiny.reconcile()
            case "event":
                tiny.advance(lambda events: data.draw(st.sampled_from(events)))
            case "image":
                tiny.edit(image=data.draw(st.sampled_from(["good", "better", "bad"])))
            case "shape":
                tiny.edit(
                    parallelism={"tensor": data.draw(st.integers(1, 2)), "pipeline": data.draw(st.integers(1, 3))}
                )
            case "replicas":
                tiny.edit(replicas=data.draw(st.integers(0, 3)))
            case "paused":
                tiny.edit(paused=data.draw(st.booleans()))
            case "pod" if tiny.pods:
                tiny.delete_pod(data.draw(st.sampled_from(sorted(tiny.pods))))
            case "set" if tiny.sets:
                tiny.delete_set(data.draw(st.sampled_from(sorted(tiny.sets))))
    tiny.edit(image="last", replicas=2, paused=False)
    tiny.settle()
    assert tiny.images() == ["last", "last"]
    assert tiny.serving() == 2 == len(tiny.taken())


def test_a_new_group_serves_before_the_old_one_goes() -> None:
    tiny = cluster()
    tiny.settle()
    tiny.edit(image="better")
    planned = tiny.reconcile()
    assert sorted(tiny.sets) == ["chat-0", "chat-1"] and not planned.delete
    tiny.advance(lambda events: "make chat-1-0")
    assert not tiny.reconcile().delete
    tiny.advance(lambda events: "serve chat-1-0")
    assert [item.name for item in tiny.reconcile().delete] == ["chat-0"]


def test_an_index_is_reused_only_when_its_pods_are_gone() -> None:
    tiny = cluster(rollout={"maxSurge": 2, "maxUnavailable": 1})
    tiny.settle()
    tiny.delete_set("chat-0")
    tiny.reconcile()
    assert sorted(tiny.sets) == ["chat-1"]
    tiny.advance(lambda events: "remove chat-0-0")
    tiny.edit(replicas=2)
    tiny.reconcile()
    assert sorted(tiny.sets) == ["chat-0", "chat-1"]


def test_a_bad_revision_can_be_taken_back_while_the_old_one_serves_on() -> None:
    tiny = cluster(replicas=2)
    tiny.settle()
    tiny.edit(image="bad")
    tiny.settle()
    assert tiny.serving() == 2 and sorted(tiny.images()) == ["bad", "good", "good"]
    tiny.edit(image="good")
    assert [item.name for item in tiny.reconcile().delete] == ["chat-2"]
    tiny.settle()
    assert tiny.images() == ["good", "good"] and tiny.serving() == 2


def test_a_revision_that_never_served_is_replaced_at_once_even_without_surge() -> None:
    tiny = cluster("bad", rollout={"maxSurge": 0, "maxUnavailable": 1})
    tiny.settle()
    tiny.edit(image="good")
    assert [item.name for item in tiny.reconcile().delete] == ["chat-0"]
    tiny.settle()
    assert tiny.images() == ["good"] and tiny.serving() == 1


def test_scaling_down_takes_what_does_not_serve_first_then_the_highest_index() -> None:
    tiny = cluster(replicas=3)
    tiny.settle()
    tiny.delete_pod("chat-0-0")
    tiny.advance(lambda events: "remove chat-0-0")
    tiny.edit(replicas=1)
    assert sorted(item.name for item in tiny.reconcile().delete) == ["chat-0", "chat-2"]


def test_restart_at_replaces_every_group_and_takes_the_present_defaults() -> None:
    tiny = TinyCluster(resource(replicas=2), Options(worker_image="one"))
    tiny.settle()
    tiny.options = Options(worker_image="two")
    tiny.settle()
    assert tiny.images() == ["one", "one"], "an upgrade of the operator must roll no group"
    tiny.edit(replicas=3)
    tiny.settle()
    assert tiny.images() == ["one"] * 3, "groups of one revision are alike"
    tiny.edit(restartAt="2026-01-01T00:00:00Z")
    tiny.settle()
    assert tiny.images() == ["two"] * 3


def test_a_group_that_blinks_at_the_edit_is_not_deleted_for_it() -> None:
    tiny = cluster()
    tiny.settle()
    tiny.blip("chat-0")
    tiny.edit(image="bad")
    tiny.settle()
    assert tiny.images() == ["good", "bad"] and tiny.groups_serving() == {"chat-0"}


def test_a_stuck_rollout_leaves_every_group_that_has_served_however_long_it_takes() -> None:
    tiny = cluster(replicas=3)
    tiny.settle()
    for image in ("bad", "bad-too", "bad-again"):
        tiny.edit(image=image)
        tiny.settle()
        for name in ("chat-0", "chat-1", "chat-2"):
            tiny.blip(name)
            tiny.now += 2 * DOWN_S
            tiny.settle()
            tiny.delete_pod(f"{name}-0")
            tiny.settle()
    assert tiny.groups_serving() == {"chat-0", "chat-1", "chat-2"} and tiny.images() == ["good"] * 3 + ["bad-again"]


def test_a_group_that_is_down_for_good_goes_after_minutes_once_the_new_revision_serves() -> None:
    tiny = cluster(replicas=2)
    tiny.settle()
    tiny.break_for_good("chat-0")
    tiny.break_for_good("chat-1")
    tiny.reconcile()
    down_since = tiny.now
    tiny.edit(image="better")
    for event in ("make chat-2-0", "serve chat-2-0"):
        assert not [gone for gone in tiny.reconcile().delete if gone.kind == "StatefulSet"]
        tiny.advance(lambda events, event=event: event)
    planned = tiny.reconcile()
    assert [gone.name for gone in planned.delete] == ["chat-1"], "one more than maxUnavailable leaves is spare"
    tiny.advance(lambda events: "remove chat-1-0")
    tiny.reconcile()
    tiny.advance(lambda events: "make chat-1-0")
    wait_s = tiny.reconcile().requeue_after
    assert wait_s is not None and 0 < wait_s <= DOWN_S and "chat-0" in tiny.sets
    tiny.now = down_since + DOWN_S
    (gone,) = tiny.reconcile().delete
    assert gone.name == "chat-0" and "has not served for 600 s" in gone.reason


def test_whether_a_group_has_served_survives_the_operator_and_a_loss_of_the_status() -> None:
    tiny = cluster()
    tiny.settle()
    tiny.blip("chat-0")
    tiny.reconcile()
    del tiny.resource["status"]
    tiny.edit(image="bad")
    tiny.settle()
    assert tiny.groups_serving() == {"chat-0"}
    annotations = tiny.sets["chat-0"]["metadata"]["annotations"]
    assert annotations == {"octavo.dev/served": "true"}, "it serves again, so it is no longer down"
    assert "octavo.dev/served" not in tiny.sets["chat-1"]["metadata"].get("annotations", {})


def test_a_group_that_served_while_no_operator_ran_has_served() -> None:
    tiny = cluster()
    tiny.reconcile()
    for event in ("make chat-0-0", "serve chat-0-0"):
        tiny.advance(lambda events, event=event: event)
    tiny.blip("chat-0")
    status = tiny.pods["chat-0-0"]["status"]
    status["startTime"] = "2026-01-01T00:00:00Z"
    (ready,) = [entry for entry in status["conditions"] if entry["type"] == "Ready"]
    ready["lastTransitionTime"] = "2026-01-01T00:05:00Z"
    tiny.edit(image="bad")
    assert not [gone for gone in tiny.reconcile().delete if gone.kind == "StatefulSet"]
    ready["lastTransitionTime"] = status["startTime"]
    del tiny.sets["chat-0"]["metadata"]["annotations"]
    assert [gone.name for gone in tiny.reconcile().delete if gone.kind == "StatefulSet"] == ["chat-0"]


def test_a_scale_up_during_a_stuck_rollout_grows_the_revision_that_serves() -> None:
    tiny = cluster(replicas=2)
    tiny.settle()
    tiny.edit(image="bad")
    tiny.settle()
    tiny.edit(replicas=6)
    tiny.settle()
    assert Counter(tiny.images()) == {"good": 6, "bad": 1} and tiny.serving() == 6
    tiny.edit(replicas=3)
    tiny.settle()
    assert Counter(tiny.images()) == {"good": 3, "bad": 1} and tiny.serving() == 3


def test_a_scale_up_in_the_middle_of_a_rollout_grows_both_revisions_in_proportion() -> None:
    tiny = cluster(replicas=4)
    tiny.settle()
    tiny.edit(image="better")
    while [tiny.image(name) for name in tiny.groups_serving()].count("better") < 2:
        tiny.reconcile()
        tiny.advance(lambda events: events[0])
    while tiny.images().count("good") > 2 or tiny.images().count("better") < 3:
        tiny.reconcile()
        tiny.advance(lambda events: next(event for event in events if "serve" not in event))
    assert Counter(tiny.images()) == {"good": 2, "better": 3}
    tiny.edit(replicas=8)
    tiny.reconcile()
    assert Counter(tiny.images()) == {"good": 4, "better": 5}, "2 and 2 serve: half of 4 each"
    tiny.settle()
    assert tiny.images() == ["better"] * 8 and tiny.serving() == 8


def test_a_revision_that_is_down_for_minutes_does_not_grow_and_its_other_groups_make_room() -> None:
    tiny = cluster(replicas=3)
    tiny.reconcile()
    for event in ("make chat-0-0", "serve chat-0-0"):
        tiny.advance(lambda events, event=event: event)
    tiny.reconcile()
    tiny.break_for_good("chat-0")
    tiny.reconcile()
    tiny.edit(image="better")
    assert Counter(deleted(tiny)) == {}, "one of three has served: the others may come to serve yet"
    tiny.wait(DOWN_S)
    assert sorted(deleted(tiny)) == ["chat-1", "chat-2"]
    tiny.edit(replicas=5)
    tiny.settle()
    assert tiny.images() == ["better"] * 5


def deleted(tiny: TinyCluster) -> list[str]:
    """Groups that the next look deletes."""
    return [gone.name for gone in tiny.reconcile().delete if gone.kind == "StatefulSet"]


def test_a_blip_of_a_new_group_creates_no_old_one() -> None:
    tiny = cluster(replicas=4)
    tiny.settle()
    tiny.edit(image="better")
    for name in ("chat-4", "chat-3"):
        tiny.reconcile()
        for event in (f"make {name}-0", f"serve {name}-0"):
            tiny.advance(lambda events, event=event: event)
        (old,) = deleted(tiny)
        tiny.advance(lambda events, old=old: f"remove {old}-0")
    tiny.blip("chat-4")
    tiny.reconcile()
    assert Counter(tiny.images()) == {"good": 2, "better": 3}


def test_a_group_of_the_good_revision_that_is_deleted_by_hand_is_created_again_as_it_was() -> None:
    tiny = cluster(replicas=2)
    tiny.settle()
    tiny.edit(image="bad")
    tiny.settle()
    tiny.delete_set("chat-1")
    tiny.settle()
    assert Counter(tiny.images()) == {"good": 2, "bad": 1} and tiny.serving() == 2


def test_a_group_whose_template_is_lost_is_replaced_and_serves_until_then() -> None:
    tiny = cluster()
    tiny.settle()
    (lost,) = [name for name in tiny.revisions if "router" not in name]
    tiny.edit(image="bad")
    tiny.settle()
    del tiny.revisions[lost]
    tiny.blip("chat-0")
    tiny.settle()
    assert tiny.groups_serving() == {"chat-0"}
    tiny.edit(image="better")
    tiny.settle()
    assert tiny.images() == ["better"] and tiny.serving() == 1


def test_paused_takes_all_groups_and_keeps_the_routers() -> None:
    tiny = cluster(replicas=2)
    tiny.settle()
    tiny.edit(paused=True)
    tiny.settle()
    assert not tiny.taken() and tiny.router is not None
    ready = next(c for c in tiny.resource["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Paused")
    tiny.edit(paused=False)
    tiny.settle()
    assert tiny.serving() == 2


def test_a_surge_without_room_says_after_a_minute_which_edit_helps_and_that_edit_works() -> None:
    tiny = cluster()
    tiny.settle()
    tiny.edit(image="better")
    tiny.reconcile()
    tiny.advance(lambda events: "make chat-1-0")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    since = "1970-01-12T13:46:40Z"
    tiny.pods["chat-1-0"]["status"]["conditions"] = [{**unscheduled, "lastTransitionTime": since}]
    tiny.now = 1_000_000.0 + 30
    early = tiny.reconcile()
    assert progressing(tiny)["reason"] != "SurgeUnschedulable"
    assert early.requeue_after is not None and early.requeue_after <= 30
    tiny.now = 1_000_000.0 + 60
    tiny.reconcile()
    assert progressing(tiny)["reason"] == "SurgeUnschedulable" and "maxSurge: 0" in progressing(tiny)["message"]
    tiny.edit(rollout={"maxSurge": 0, "maxUnavailable": 1})
    assert [item.name for item in tiny.reconcile().delete] == ["chat-0"]


def progressing(tiny: TinyCluster) -> dict[str, str]:
    found: dict[str, str] = next(c for c in tiny.resource["status"]["conditions"] if c["type"] == "Progressing")
    return found
