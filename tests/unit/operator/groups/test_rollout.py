"""Groups are replaced within bounds, whatever happens in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.options import Options

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
    assert tiny.images() == ["one", "one"], "an upgrade of the operator must roll nobody"
    tiny.edit(replicas=3)
    tiny.settle()
    assert tiny.images() == ["one"] * 3, "groups of one revision are alike"
    tiny.edit(restartAt="2026-01-01T00:00:00Z")
    tiny.settle()
    assert tiny.images() == ["two"] * 3


def test_a_group_whose_template_is_lost_is_replaced_like_one_of_another_revision() -> None:
    tiny = cluster()
    tiny.settle()
    tiny.sets["chat-0"]["metadata"]["annotations"]["octavo.dev/pod-template"] = "{"
    tiny.reconcile()
    assert sorted(tiny.sets) == ["chat-0", "chat-1"] and tiny.serving() == 1
    tiny.settle()
    assert sorted(tiny.sets) == ["chat-1"] and tiny.serving() == 1


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
