"""What raises an alarm and what does not: refused writes, foreign names, pods that wait, routers that are replaced."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from support.cluster.services import condition, pod, router_of, service

from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import FieldConflict, Refusal, RouterReport, Snapshot, WarningEvent
from octavo.operator.planning.plan import UNREADY_ROUTER_POLL_S, Plan, plan
from octavo.operator.planning.routers.counts import CONNECTED_S

Json = dict[str, Any]  # Any: Kubernetes JSON
NOW, SINCE = 1_000.0, "1970-01-01T00:16:40Z"  # the same moment
NO_NODE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
SCHEDULED = condition("PodScheduled", "True", lastTransitionTime=SINCE)
SERVING = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])


def group(index: int = 0, **spec: Any) -> Json:
    """The StatefulSet of a group, as the operator creates it."""
    first = plan(service(**spec), Snapshot(), Options(), 0.0)
    found = next(dict(item.object) for item in first.apply if item.object["kind"] == "StatefulSet")
    labels = {**found["metadata"]["labels"], "octavo.dev/group": str(index)}
    return {
        **found,
        "metadata": {**found["metadata"], "labels": labels, "uid": f"sts-{index}", "name": f"chat-{index}"},
    }


def of_group(item: Json, index: int = 0) -> Json:
    """The pod as one of the group's StatefulSet."""
    owner = [{"kind": "StatefulSet", "uid": f"sts-{index}", "controller": True}]
    return {**item, "metadata": {**item["metadata"], "ownerReferences": owner}}


def served(*routers: Json, **more: Any) -> Snapshot:
    """One group that serves, and these routers, or one that is ready."""
    pods = (of_group(SERVING), *(routers or (router_of(service()),)))
    return Snapshot(statefulsets=(group(),), pods=pods, **more)


def seen(snapshot: Snapshot, now: float = NOW, status: Json | None = None, **spec: Any) -> Plan:
    return plan(service(status=status, **spec), snapshot, Options(), now)


def verdicts(planned: Plan) -> dict[str, tuple[str, str]]:
    """(status, reason) by type."""
    assert planned.status is not None
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in planned.status["conditions"]}


def message(planned: Plan, kind: str) -> str:
    assert planned.status is not None
    return str(next(entry["message"] for entry in planned.status["conditions"] if entry["type"] == kind))


def calm(planned: Plan) -> bool:
    """No alarm: requests are answered, and nothing is called broken."""
    found = verdicts(planned)
    return found["Ready"][0] == "True" and found["Degraded"] == ("False", "Healthy")


QUOTA = 'deployments.apps "chat-router" is forbidden: exceeded quota: none, requested: 1, used: 1, limited: 1'
POLICY = "deployments.apps \"chat-router\" is forbidden: ValidatingAdmissionPolicy 'labels' denied request: no team"


@pytest.mark.parametrize(("words", "reason"), [(QUOTA, "QuotaExceeded"), (POLICY, "WriteRefused")])
def test_a_refused_write_is_a_condition_with_the_object_and_the_servers_words(words: str, reason: str) -> None:
    refusals = (
        Refusal("apply NetworkPolicy chat-workers", "NetworkPolicy", "no"),
        Refusal("apply Deployment chat-router", "Deployment", words),
    )
    planned = seen(Snapshot(refusals=refusals))
    for kind, status in (
        ("Reconciled", "False"), ("Progressing", "False"), ("Ready", "False"), ("Degraded", "True"), ("Stalled", "True")
    ):  # fmt: skip
        assert verdicts(planned)[kind] == (status, reason)
        assert message(planned, kind).startswith(f"apply Deployment chat-router: {words}")
    assert message(planned, "Reconciled").endswith("(and 1 more)")
    assert verdicts(planned)["RouterReady"] == ("False", reason)
    assert ("Warning", reason) in [(event.type, event.reason) for event in planned.events]


def test_a_write_that_passes_again_clears_the_condition() -> None:
    refused = seen(served(refusals=(Refusal("apply Deployment chat-router", "Deployment", POLICY),)))
    assert verdicts(refused)["Ready"] == ("True", "Serving") and verdicts(refused)["Degraded"][0] == "True"
    assert refused.status is not None
    again = seen(served(), NOW + 60, dict(refused.status))
    assert verdicts(again)["Reconciled"] == ("True", "Applied") and calm(again)
    assert ("Normal", "Applied") in [(event.type, event.reason) for event in again.events]


def test_a_first_start_is_not_degraded_because_a_write_was_refused_before() -> None:
    refused = seen(Snapshot(refusals=(Refusal("apply Deployment chat-router", "Deployment", POLICY),)))
    assert verdicts(seen(Snapshot(), status=dict(refused.status or {})))["Degraded"] == ("False", "Healthy")


def test_a_failure_of_an_earlier_revision_does_not_make_the_first_start_of_another_one_a_failure() -> None:
    broken = Snapshot(statefulsets=(group(),), pods=(unscheduled("chat-0-0", 0),))
    degraded = dict(seen(broken, NOW + 1e5).status or {})
    assert verdicts(seen(Snapshot(), status=degraded))["Degraded"] == ("True", "MinimumReplicasUnavailable")
    assert verdicts(seen(Snapshot(), status=degraded, image="other"))["Degraded"] == ("False", "Healthy")


def test_a_refused_object_beside_serving_is_not_why_a_service_is_not_ready() -> None:
    refusal = Refusal("apply PodDisruptionBudget chat-workers", "PodDisruptionBudget", "no")
    planned = seen(Snapshot(refusals=(refusal,)))
    assert verdicts(planned)["Reconciled"] == ("False", "WriteRefused")
    assert verdicts(planned)["Ready"] == ("False", "Pending")


@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "NetworkPolicy"])
def test_a_foreign_object_that_serving_does_not_need_raises_no_alarm(kind: str) -> None:
    planned = seen(served(foreign=frozenset({(kind, "chat-workers")})))
    assert calm(planned) and verdicts(planned)["Reconciled"] == ("False", "NameConflict")
    assert f"{kind} chat-workers exists" in message(planned, "Reconciled")


BESIDE: dict[str, Json] = {
    "FieldConflict": {"conflicts": (FieldConflict("Service", "chat", "spec.type", "other"),)},
    "NameConflict": {"foreign": frozenset({("PodDisruptionBudget", "chat-workers")})},
    "KindUnreadable": {"unreadable": (("NetworkPolicy", "cannot list"),)},
}


@pytest.mark.parametrize("reason", BESIDE)
def test_a_lost_group_is_degraded_until_it_serves_whatever_else_cannot_be_reconciled(reason: str) -> None:
    status, lost = dict(seen(served()).status or {}), Snapshot(statefulsets=(group(),), pods=(router_of(service()),))
    for seconds in range(3):
        planned = seen(replace(lost, **BESIDE[reason]), NOW + seconds, status)
        assert verdicts(planned)["Reconciled"] == ("False", reason)
        assert verdicts(planned)["Degraded"] == ("True", "MinimumReplicasUnavailable")
        status = dict(planned.status or {})
    assert calm(seen(served(**BESIDE[reason]), NOW + 3, status))


SKEW = "the group is of release 9.0.0 (protocol 9) and this router of release 0.1.0 (protocol 1)"


@pytest.mark.parametrize("since", [None, NOW - 5])
def test_a_router_and_a_group_of_releases_too_far_apart_are_named(since: float | None) -> None:
    reports = {"uid-chat-router-0": RouterReport(since, skew=SKEW)}
    planned = seen(served(routers=reports))
    assert verdicts(planned)["Degraded"] == ("True", "VersionSkew")
    assert message(planned, "Degraded") == f"chat-router-0: {SKEW}"
    assert verdicts(planned)["Ready"] == (("True", "Serving") if since is None else ("False", "VersionSkew"))
    assert ("Warning", "VersionSkew") in [(event.type, event.reason) for event in planned.events]


def test_also_by_a_router_that_is_not_ready_and_is_asked_again() -> None:
    waiting = router_of(service(), ready=False, phase="Running", conditions=[condition("Ready", "False")])
    planned = seen(served(waiting, routers={"uid-chat-router-0": RouterReport(skew=SKEW)}))
    assert verdicts(planned)["Ready"] == ("False", "VersionSkew") == verdicts(planned)["RouterReady"]
    assert planned.poll_after == UNREADY_ROUTER_POLL_S


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet", "Deployment"])
def test_without_a_kind_that_plans_need_nothing_is_changed_and_the_status_says_which(kind: str) -> None:
    status = dict(seen(served()).status or {})
    planned = seen(served(unreadable=((kind, "User octavo cannot list it"),)), status=status)
    assert not planned.apply and not planned.delete and not planned.delete_pods and planned.certificates
    found = verdicts(planned)
    assert found["Ready"] == ("Unknown", "KindUnreadable") and found["Reconciled"] == ("False", "KindUnreadable")
    assert found["Degraded"] == ("True", "KindUnreadable")
    assert message(planned, "Ready") == f"the operator may not list and watch {kind}: User octavo cannot list it"
    assert planned.status is not None and planned.status["readyReplicas"] == 1, "as last seen"
    assert calm(seen(served(), status=dict(planned.status)))


def test_without_another_kind_the_rest_goes_on() -> None:
    planned = seen(served(unreadable=(("NetworkPolicy", "cannot list"),)))
    assert planned.apply and calm(planned) and verdicts(planned)["Reconciled"] == ("False", "KindUnreadable")


def unscheduled(name: str = "chat-1-0", index: int = 1, text: str = NO_NODE, reason: str = "Unschedulable") -> Json:
    found = condition("PodScheduled", "False", reason=reason, message=text, lastTransitionTime=SINCE)
    return of_group(pod(name, index, phase="Pending", conditions=[found]), index)


def scaled_up(item: Json, events: Iterable[WarningEvent] = ()) -> Snapshot:
    """Two groups desired: one serves, of the other this pod."""
    routers = router_of(service())
    return Snapshot(statefulsets=(group(), group(1)), pods=(of_group(SERVING), item, routers), warnings=tuple(events))


@pytest.mark.parametrize(
    ("seconds", "event", "is_failure"),
    [
        (59, None, False),
        (61, None, True),
        (61, "TriggeredScaleUp", False),
        (61, "Nominated", False),
        (61, "NotTriggerScaleUp", True),
        (899, "TriggeredScaleUp", False),
        (901, "TriggeredScaleUp", True),
    ],
)
def test_a_pod_without_a_node_is_a_failure_once_no_autoscaler_will_seat_it(
    seconds: float, event: str | None, is_failure: bool
) -> None:
    events = [WarningEvent("Pod", "chat-1-0", event, "pod triggered scale-up: 1->2", NOW)] if event else []
    planned = seen(scaled_up(unscheduled(), events), NOW + seconds, replicas=2)
    found = verdicts(planned)
    assert found["Ready"] == ("True", "PartiallyAvailable")
    if is_failure:
        assert found["Degraded"] == ("True", "Unschedulable") and found["Progressing"] == ("False", "Unschedulable")
        assert found["Stalled"] == ("True", "Unschedulable")
    else:
        assert found["Progressing"][0] == "True" and found["Stalled"][0] == "False"
        assert "chat-1-0: " in message(planned, "Progressing") and "nvidia.com/gpu" in message(planned, "Progressing")
        assert found["Degraded"][1] in ("Healthy", "MinimumReplicasUnavailable")
        assert planned.changes_after is not None, "the time alone makes it a failure"


def test_at_a_first_start_a_pod_that_waits_for_a_node_is_why_the_service_is_not_ready() -> None:
    snapshot = Snapshot(statefulsets=(group(),), pods=(unscheduled("chat-0-0", 0),))
    planned = seen(snapshot)
    assert verdicts(planned)["Ready"] == ("False", "Unschedulable") and verdicts(planned)["Degraded"] == (
        "False",
        "Healthy",
    )
    assert planned.changes_after is not None and 60.0 <= planned.changes_after <= 61.0


def test_a_gated_pod_waits_without_an_alarm_for_as_long_as_it_takes() -> None:
    gated = unscheduled(text="Scheduling is blocked due to non-empty scheduling gates", reason="SchedulingGated")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    planned = seen(scaled_up(gated), NOW + 1e6, replicas=2)
    assert "gates are removed: kueue.x-k8s.io/admission" in message(planned, "Progressing")
    assert verdicts(planned)["Progressing"][0] == "True" and verdicts(planned)["Degraded"] != (
        "True",
        "SchedulingGated",
    )


@pytest.mark.parametrize(
    ("text", "at_once"),
    [
        ('0/2 nodes are available: persistentvolumeclaim "models" not found.', True),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", False),
    ],
)
def test_a_claim_that_is_missing_is_a_failure_at_once_and_one_that_is_not_bound_yet_is_later(
    text: str, at_once: bool
) -> None:
    snapshot = scaled_up(unscheduled(text=text))
    assert (verdicts(seen(snapshot, replicas=2))["Degraded"] == ("True", "VolumePending")) is at_once
    assert verdicts(seen(snapshot, NOW + 61, replicas=2))["Degraded"] == ("True", "VolumePending")


def test_a_surge_that_finds_no_node_stops_the_rollout_and_nothing_is_degraded() -> None:
    old, new = group(), group(1, image="other")
    snapshot = Snapshot(statefulsets=(old, new), pods=(of_group(SERVING), unscheduled(), router_of(service())))
    early, late = seen(snapshot, NOW + 59, image="other"), seen(snapshot, NOW + 61, image="other")
    assert calm(early) and verdicts(early)["Progressing"] == ("True", "RollingOut")
    assert "no node has enough nvidia.com/gpu" in message(early, "Progressing")
    assert calm(late) and verdicts(late)["Progressing"] == ("False", "SurgeUnschedulable")
    assert verdicts(late)["Stalled"] == ("True", "SurgeUnschedulable")


def test_a_volume_that_stays_attached_elsewhere_is_a_failure_after_a_minute() -> None:
    waits = pod("chat-0-0", phase="Pending", conditions=[SCHEDULED], containerStatuses=[{"state": {"waiting": {}}}])
    text = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-1-0'
    event = WarningEvent("Pod", "chat-0-0", "FailedAttachVolume", text, NOW)
    snapshot = Snapshot(statefulsets=(group(),), pods=(of_group(waits),), warnings=(event,))
    early, late = seen(snapshot, NOW + 59), seen(snapshot, NOW + 61)
    assert verdicts(early)["Ready"] == verdicts(late)["Ready"] == ("False", "FailedAttachVolume")
    assert verdicts(early)["Degraded"][0] == "False" and verdicts(late)["Degraded"] == ("True", "FailedAttachVolume")
    assert "Multi-Attach error" in message(late, "Ready") and "chat-0-0" in message(late, "Ready")


def test_an_image_that_cannot_be_pulled_is_named_with_the_reason_of_the_last_attempt() -> None:
    state = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "img"'}}
    waits = pod(
        "chat-0-0", phase="Pending", conditions=[SCHEDULED], containerStatuses=[{"image": "img", "state": state}]
    )
    event = WarningEvent("Pod", "chat-0-0", "Failed", 'Failed to pull image "img": 401 unauthorized', NOW)
    snapshot = Snapshot(statefulsets=(group(),), pods=(of_group(waits),))
    assert "Back-off pulling" in message(seen(snapshot), "Ready")
    assert "401 unauthorized" in message(seen(replace(snapshot, warnings=(event,))), "Ready")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_router_pods_that_ended_raise_no_alarm_while_others_are_ready(phase: str) -> None:
    gone = router_of(service(), 1, ready=False, phase=phase, reason="Evicted", message="low on memory")
    planned = seen(served(router_of(service()), gone))
    assert calm(planned) and verdicts(planned)["RouterReady"] == ("True", "Ready")
    assert verdicts(planned)["Progressing"] == ("False", "Complete")
    alone = seen(served(gone))
    assert verdicts(alone)["RouterReady"] == ("False", "Evicted" if phase == "Failed" else "RouterStarting")


def test_routers_are_counted_and_are_of_the_present_configuration_or_not() -> None:
    strict: Json = {"router": {"strict": True, "replicas": 2}}
    old, new = router_of(service()), router_of(service(**strict), 1)
    none_new = seen(served(old), **strict)
    assert verdicts(none_new)["RouterReady"] == ("True", "RollingOut")
    assert message(none_new, "RouterReady") == "1 of 2 routers ready, 0 of the present configuration"
    assert verdicts(none_new)["Progressing"] == ("True", "RollingOut") and verdicts(none_new)["Ready"] == (
        "True",
        "Serving",
    )
    half = seen(served(old, new), **strict)
    assert message(half, "RouterReady") == "2 of 2 routers ready, 1 of the present configuration"
    one = seen(served(new), **strict)
    assert verdicts(one)["RouterReady"] == ("True", "PartiallyReady")
    all_new = seen(served(new, router_of(service(**strict), 2)), **strict)
    assert verdicts(all_new)["RouterReady"] == ("True", "Ready") and verdicts(all_new)["Progressing"] == (
        "False",
        "Complete",
    )


def generation(planned: Plan, kind: str) -> int:
    assert planned.status is not None
    return int(next(entry["observedGeneration"] for entry in planned.status["conditions"] if entry["type"] == kind))


def test_conditions_that_old_pods_keep_true_name_their_generation() -> None:
    first = dict(seen(served()).status or {})
    changed = service(generation=5, status=first, router={"strict": True})
    planned = plan(changed, served(), Options(), NOW)
    kinds = ("Ready", "RouterReady", "ModelLoaded", "Progressing")
    assert [generation(planned, kind) for kind in kinds] == [1, 1, 5, 5]
    fallen = plan(changed, Snapshot(), Options(), NOW)
    assert generation(fallen, "Ready") == 5 and verdicts(fallen)["Ready"][0] == "False"
    again = plan(
        service(generation=5, status=dict(fallen.status or {}), router={"strict": True}), served(), Options(), NOW
    )
    assert verdicts(again)["Ready"][0] == "True" and generation(again, "Ready") == 4, "not of pods of the present spec"


def routed(**report: Any) -> Snapshot:
    return served(routers={"uid-chat-router-0": RouterReport(**report)})


def test_a_service_is_ready_only_when_a_router_reaches_a_group() -> None:
    assert calm(seen(served())), "a router that the operator cannot ask counts as the kubelet has it"
    assert calm(seen(routed()))
    starting = seen(routed(unconnected_since=NOW - 1))
    assert (
        verdicts(starting)["Ready"] == ("False", "RouterDisconnected") and verdicts(starting)["Degraded"][0] == "False"
    )
    assert starting.requeue_after == 1.0, "asked again soon"
    lasting = seen(routed(unconnected_since=NOW - 61))
    assert verdicts(lasting)["Degraded"] == ("True", "RouterDisconnected") and "NetworkPolicies" in message(
        lasting, "Degraded"
    )


def test_a_moment_without_a_group_does_not_end_ready() -> None:
    status = dict(seen(routed()).status or {})
    assert calm(seen(routed(unconnected_since=NOW - 9), status=status))
    assert verdicts(seen(routed(unconnected_since=NOW - 11), status=status))["Ready"] == ("False", "RouterDisconnected")


def test_one_of_two_routers_that_reaches_a_group_is_enough() -> None:
    reports = {"uid-chat-router-0": RouterReport(NOW - 99), "uid-chat-router-1": RouterReport()}
    two = served(router_of(service()), router_of(service(), 1), routers=reports)
    assert calm(seen(two, router={"replicas": 2}))


def test_a_router_that_is_cut_off_beside_another_is_planned_for_when_it_stops_counting() -> None:
    reports = {"uid-chat-router-0": RouterReport(NOW - 1)}
    two = served(router_of(service()), router_of(service(), 1), routers=reports)
    first = seen(served(router_of(service()), router_of(service(), 1)), router={"replicas": 2})
    assert first.status is not None and calm(first)
    due = seen(two, status=dict(first.status), router={"replicas": 2}).changes_after
    assert due is not None and CONNECTED_S - 1 < due < CONNECTED_S, "a second has passed"


def test_a_router_that_lost_its_watch_is_named_while_it_serves() -> None:
    planned = seen(routed(stale=True))
    assert verdicts(planned)["Ready"] == ("True", "Serving") and verdicts(planned)["Degraded"] == (
        "True",
        "RouterWatchLost",
    )
    assert message(planned, "Degraded").startswith("chat-router-0: ")


def account(created: str, uid: str = "account-2") -> Json:
    owner = [{"uid": "uid-chat", "controller": True}]
    metadata = {"name": "chat-router", "uid": uid, "creationTimestamp": created, "ownerReferences": owner}
    return {"kind": "ServiceAccount", "metadata": metadata}


def template(planned: Plan) -> Json:
    found = next(item.object for item in planned.apply if item.object["kind"] == "Deployment")
    return dict(found["spec"]["template"])


def test_routers_are_replaced_when_their_account_was_created_again_and_only_then() -> None:
    router = router_of(service())
    router["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    before, after = account("2026-01-01T00:00:10Z"), account("2026-01-01T00:00:11Z")
    kept = template(seen(served(router, children=(before,))))
    changed = seen(served(router, children=(after,)))
    assert kept == template(seen(served(router))) and "annotations" not in kept["metadata"]
    assert template(changed)["metadata"]["annotations"] == {"octavo.dev/account": "account-2"}
    deployment = next(item.object for item in changed.apply if item.object["kind"] == "Deployment")
    router["metadata"]["creationTimestamp"] = "2026-01-01T00:00:20Z"
    later = seen(served(router, router=None, children=(after,)))
    assert template(later) == kept
    settled = seen(replace(served(router, children=(after,)), router=deployment))
    assert template(settled) == template(changed), "the new pods stay"
