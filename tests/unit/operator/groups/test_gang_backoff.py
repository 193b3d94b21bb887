"""Partially scheduled groups hold nodes that others need: they back off in turn, so that whole groups can start."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import condition, pod, resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups import gang_backoff as gangs
from octavo.operator.groups.groups import GangBackoff, Group, timestamp

Json = dict[str, Any]  # Any: Kubernetes JSON
SINCE = 1_000_000.0


def statefulset(index: int, backoff: GangBackoff | None) -> Json:
    metadata: Json = {"name": f"chat-{index}", "uid": f"sts-{index}"}
    if backoff:
        metadata["annotations"] = {"octavo.dev/gang-backoff": gangs.encode(backoff)}
    return {"metadata": metadata, "spec": {"replicas": 0 if backoff and backoff.scaled_to_zero else 3}}


def group(index: int, placed: int, lacking: int, backoff: GangBackoff | None = None) -> Group:
    """Of three pods; the lacking ones lack a node since SINCE."""
    scheduled = condition("PodScheduled", "True")
    unscheduled = condition("PodScheduled", "False", reason="Unschedulable", lastTransitionTime=timestamp(SINCE))
    states = [scheduled] * placed + [unscheduled] * lacking
    pods = [pod(f"chat-{index}-{k}", index, owner=f"sts-{index}", conditions=[s]) for k, s in enumerate(states)]
    template = {"metadata": {"annotations": {"octavo.dev/pods": "3"}}, "spec": {}}
    return Group(index, statefulset(index, backoff), tuple(pods), None, template)


def backoffs(groups: list[Group], now: float, backoff_after_s: float = gangs.BACKOFF_AFTER_S) -> Any:
    return gangs.backoffs(groups, backoff_after_s, now)


def next_step(groups: list[Group], now: float, backoff_after_s: float = gangs.BACKOFF_AFTER_S) -> float | None:
    return gangs.next_step(groups, backoff_after_s, now)


def gone(found: Any) -> list[int]:
    return [index for index, backoff in found.items() if backoff.scaled_to_zero]


def test_of_two_partially_scheduled_groups_the_smaller_backs_off_after_a_minute() -> None:
    partial = [group(0, placed=1, lacking=2), group(1, placed=2, lacking=1)]
    assert backoffs(partial, SINCE + 59) == {} and 1.0 < (next_step(partial, SINCE + 59) or 0) < 1.2
    found = backoffs(partial, SINCE + 60)
    assert gone(found) == [0] and found[0].attempts == 1
    assert SINCE + 80 <= found[0].until_s <= SINCE + 90


def test_of_two_alike_the_group_with_fewer_attempts_then_the_later_one_backs_off() -> None:
    once = GangBackoff(1, SINCE, scaled_to_zero=False)
    assert gone(backoffs([group(0, 1, 2), group(1, 1, 2)], SINCE + 60)) == [1]
    assert gone(backoffs([group(0, 1, 2), group(1, 1, 2, once)], SINCE + 60)) == [0]


def test_only_one_group_is_scaled_to_zero_at_a_time() -> None:
    scaled_to_zero = group(2, 0, 0, GangBackoff(1, SINCE + 1000, scaled_to_zero=True))
    partially_scheduled = [group(0, 1, 2), group(1, 1, 2)]
    assert gone(backoffs([*partially_scheduled, scaled_to_zero], SINCE + 500)) == [2]


def test_a_single_partially_scheduled_group_backs_off_later() -> None:
    partially_scheduled = [group(0, placed=2, lacking=1)]
    assert backoffs(partially_scheduled, SINCE + 299) == {}
    assert gone(backoffs(partially_scheduled, SINCE + 300)) == [0]


def test_a_group_that_still_gains_nodes_keeps_them() -> None:
    joining = group(0, placed=2, lacking=1)
    joining.pods[1]["status"]["conditions"][0]["lastTransitionTime"] = timestamp(SINCE + 290)
    assert backoffs([joining], SINCE + 300) == {} and 289 < (next_step([joining], SINCE + 300) or 0) < 291
    assert gone(backoffs([joining], SINCE + 590)) == [0]
    assert backoffs([joining, group(1, placed=1, lacking=2)], SINCE + 59) == {}
    assert gone(backoffs([joining, group(1, placed=1, lacking=2)], SINCE + 60)) == [1]


def test_the_time_until_a_group_backs_off_is_the_services_and_may_be_never() -> None:
    one, two = [group(0, placed=2, lacking=1)], [group(0, placed=2, lacking=1), group(1, placed=1, lacking=2)]
    assert backoffs(one, SINCE + 899, 900.0) == {} and gone(backoffs(one, SINCE + 900, 900.0)) == [0]
    assert backoffs(two, SINCE + 179, 900.0) == {} and gone(backoffs(two, SINCE + 180, 900.0)) == [1]
    for groups in (one, two):
        assert backoffs(groups, SINCE + 1e9, math.inf) == {} and next_step(groups, SINCE, math.inf) is None


def test_what_holds_nothing_or_lacks_nothing_is_left_alone() -> None:
    still = [group(0, placed=0, lacking=3), group(1, placed=3, lacking=0), group(2, placed=2, lacking=0)]
    assert backoffs(still, SINCE + 9999) == {} and next_step(still, SINCE + 9999) is None


def test_a_group_stays_scaled_to_zero_until_its_backoff_is_over_and_its_pods_are_gone() -> None:
    over = GangBackoff(2, SINCE, scaled_to_zero=True)
    assert gone(backoffs([group(0, 0, 0, over)], SINCE - 5)) == [0]
    assert gone(backoffs([group(0, 1, 0, over)], SINCE + 5)) == [0]
    back = backoffs([group(0, 0, 0, over)], SINCE + 5)
    assert gone(back) == [] and back[0].attempts == 2


def test_each_backoff_is_longer_up_to_a_bound_and_groups_differ() -> None:
    one, other = group(0, 1, 2), group(1, 1, 2)
    times = [gangs.backoff_s(one, attempt) for attempt in range(1, 12)]
    assert all(20 * 2**n <= time <= 30 * 2**n for n, time in enumerate(times[:5]))
    assert max(times) <= 900 and gangs.backoff_s(other, 1) != times[0] == gangs.backoff_s(one, 1)


def test_a_damaged_annotation_is_ignored() -> None:
    for text in ("", "{", "[]", '{"attempts": "x", "until": "2026-01-01T00:00:00Z"}', '{"attempts": 1, "until": 7}'):
        live = statefulset(0, None)
        live["metadata"]["annotations"] = {"octavo.dev/gang-backoff": text}
        assert Group(0, live, (), None).gang_backoff is None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), pods=st.integers(2, 3), groups=st.integers(2, 3), spare=st.integers(0, 2))
def test_partially_scheduled_groups_never_keep_each_other_from_serving(
    data: st.DataObject, pods: int, groups: int, spare: int
) -> None:
    room = pods * data.draw(st.integers(1, groups)) + min(spare, pods - 1)
    tiny = TinyCluster(resource(replicas=groups, parallelism={"pipeline": pods}), room=room)
    fit = min(groups, room // pods)
    for _ in range(400):
        if tiny.serving() == fit:
            return
        waits = tiny.reconcile().requeue_after
        if tiny.possible():
            tiny.advance(lambda events: data.draw(st.sampled_from(events)))
        else:
            assert waits is not None, "nothing can happen, and no reconcile follows"
            tiny.now += waits
    raise AssertionError(f"{tiny.serving()} of {fit} groups serve: {sorted(tiny.pods)}")


def test_the_backoff_is_removed_once_the_group_serves() -> None:
    tiny = TinyCluster(resource(replicas=2, parallelism={"pipeline": 2}), room=2)
    tiny.reconcile()
    for name in ("chat-0-0", "chat-1-0", "chat-0-1", "chat-1-1"):
        tiny.advance(lambda events, name=name: f"make {name}")
    tiny.now += 61
    planned = tiny.reconcile()
    assert tiny.sets["chat-1"]["spec"]["replicas"] == 0
    assert [item.event.reason for item in planned.apply if item.event] == ["GangBackoff"]
    tiny.reconcile()
    (said,) = [c for c in tiny.resource["status"]["conditions"] if c["type"] == "Degraded"]
    assert said["reason"] == "Unschedulable"
    tiny.room = 4
    tiny.now += 60
    tiny.settle()
    assert tiny.serving() == 2
    assert "octavo.dev/gang-backoff" not in tiny.sets["chat-1"]["metadata"]["annotations"]
