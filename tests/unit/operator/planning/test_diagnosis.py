"""Each way to break has its name in the status, with the pod in the message."""

from typing import Any

import pytest
from support.cluster.services import condition, pod, router_of, service

from octavo.operator.cluster.trim import trim
from octavo.operator.groups.options import Options
from octavo.operator.groups.revision import worker_revision
from octavo.operator.groups.snapshot import Failure, GroupReport, LostNode, ModelInfo, Snapshot, WarningEvent
from octavo.operator.planning.plan import Plan, plan

Json = dict[str, Any]  # Any: Kubernetes JSON
SCHEDULED = condition("PodScheduled", "True")
NO_NODE = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available."
NO_GPU = (
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {a: }. preemption: none."
)
NO_CLAIM = '0/2 nodes are available: persistentvolumeclaim "models" not found.'
QUOTA = 'create Pod chat-0-0 in StatefulSet chat-0 failed error: pods "chat-0-0" is forbidden: exceeded quota: q, ...'


def made(*pods: Json, name: str = "chat-0", spec: Json | None = None, **more: Any) -> Snapshot:
    """One StatefulSet, as the operator made it of this spec, with these pods."""
    first = plan(service(**spec or {}), Snapshot(), Options(), 0.0)
    found = next(dict(item.object) for item in first.apply if item.object["kind"] == "StatefulSet")
    found["metadata"] = {**found["metadata"], "annotations": {}, "uid": "sts-uid", "name": name}
    kept = tuple(item.object for item in first.apply if item.object["kind"] == "ControllerRevision")
    return Snapshot(statefulsets=(found,), revisions=kept, pods=(*pods, router_of(service(**spec or {}))), **more)


def seen(snapshot: Snapshot, **spec: Any) -> Plan:
    return plan(service(**spec), snapshot, Options(), 1_000.0)


def conditions(planned: Plan) -> dict[str, Json]:
    assert planned.status is not None
    return {entry["type"]: entry for entry in planned.status["conditions"]}


def waiting(reason: str, message: str = "") -> Json:
    return {"image": "img", "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(reason: str, code: int, message: str = "") -> Json:
    last = {
        "terminated": {"reason": reason, "exitCode": code, "message": message, "finishedAt": "2026-01-01T00:00:00Z"}
    }
    return {"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}


def running(*containers: Json, **more: Any) -> Json:
    return pod("chat-0-0", phase="Running", conditions=[SCHEDULED], containerStatuses=list(containers), **more)


def unschedulable(message: str) -> Json:
    found = condition("PodScheduled", "False", reason="Unschedulable", message=message)
    return pod("chat-0-0", phase="Pending", conditions=[found])


PODS = {
    "ImagePullBackOff": running(waiting("ErrImagePull", "manifest unknown")),
    "Unschedulable": unschedulable(NO_NODE),
    "VolumePending": unschedulable(NO_CLAIM),
    "OOMKilled": running(ended("OOMKilled", 137)),
    "CrashLoop": running(ended("Error", 1, "Traceback\nRuntimeError: no")),
    "CreateContainerConfigError": running(waiting("CreateContainerConfigError", "no such key")),
}


@pytest.mark.parametrize("reason", PODS)
def test_what_keeps_a_pod_from_serving_is_named(reason: str) -> None:
    found = conditions(seen(made(PODS[reason])))
    for kind in ("Ready", "Progressing", "ModelLoaded"):
        assert (found[kind]["status"], found[kind]["reason"]) == ("False", reason)
        assert "chat-0-0" in found[kind]["message"]
    assert (found["Degraded"]["status"], found["Degraded"]["reason"]) == ("True", reason)


def test_an_unschedulable_pod_says_which_resource_is_missing() -> None:
    assert "no node has enough cpu" in conditions(seen(made(PODS["Unschedulable"])))["Ready"]["message"]
    no_gpu = conditions(seen(made(unschedulable(NO_GPU))))["Ready"]
    assert no_gpu["reason"] == "Unschedulable" and "no node has enough nvidia.com/gpu:" in no_gpu["message"]


FOUR: Json = {"parallelism": {"pipeline": 4}}


def of_four(*states: Json) -> list[Json]:
    """Pods of a group of four, with the status of each."""
    return [{**pod(f"chat-0-{index}"), "status": state["status"]} for index, state in enumerate(states)]


def test_of_a_group_the_pod_that_has_no_node_is_named_whatever_the_others_say() -> None:
    waits = running({"restartCount": 0, "state": {"running": {}}})
    fell = running({**ended("Error", 1), "state": {"running": {}}})
    failure = Failure("chat-0-1", 5, "SupervisorLost", 0, "no answer", 5.0)
    report = GroupReport("r", "STARTING", restarts=1, last_failure=failure)
    snapshot = made(*of_four(fell, waits, unschedulable(NO_NODE), waits), spec=FOUR, reports={0: report})
    planned = seen(snapshot, **FOUR)
    found = conditions(planned)["Ready"]
    assert found["reason"] == "Unschedulable" and found["message"].startswith("chat-0-2: no node has enough cpu")
    assert planned.status is not None
    group = planned.status["groups"][0]
    assert group["state"] == "Pending"
    assert (group["lastFailure"]["pod"], group["lastFailure"]["rank"]) == ("chat-0-1", 5)


def test_pods_that_a_quota_keeps_from_being_made_are_named_beside_the_running_ones() -> None:
    waits = running({"restartCount": 0, "state": {"running": {}}})
    event = WarningEvent("StatefulSet", "chat-0", "FailedCreate", QUOTA, 1.0)
    snapshot = made(*of_four(waits, waits, waits), spec=FOUR, warnings=(event,))
    assert conditions(seen(snapshot, **FOUR))["Ready"]["reason"] == "QuotaExceeded"


def test_a_group_that_gave_back_its_nodes_says_until_when() -> None:
    snapshot = made(spec=FOUR)
    (live,) = snapshot.statefulsets
    live["metadata"]["annotations"]["octavo.dev/gang-backoff"] = '{"attempts": 2, "until": "2026-01-01T00:00:00Z"}'
    live["spec"]["replicas"] = 0
    found = conditions(seen(snapshot, **FOUR))
    for kind, status in (("Ready", "False"), ("Progressing", "False"), ("Degraded", "True")):
        assert (found[kind]["status"], found[kind]["reason"]) == (status, "Unschedulable")
        assert found[kind]["message"].startswith("chat-0: only some of its 4 pods")
        assert found[kind]["message"].endswith("2026-01-01T00:00:00Z")


def test_a_crash_shows_the_last_line_of_its_log() -> None:
    assert "RuntimeError: no" in conditions(seen(made(PODS["CrashLoop"])))["Ready"]["message"]


def test_an_exceeded_quota_is_named() -> None:
    event = WarningEvent("StatefulSet", "chat-0", "FailedCreate", QUOTA, 1.0)
    found = conditions(seen(made(warnings=(event,))))
    assert found["Ready"]["reason"] == "QuotaExceeded" and "exceeded quota: q" in found["Ready"]["message"]


def test_a_host_folder_that_is_missing_is_a_model_not_found() -> None:
    event = WarningEvent("Pod", "chat-0-0", "FailedMount", "hostPath type check failed: /m is not a directory", 1.0)
    mounting = pod(
        "chat-0-0", phase="Pending", conditions=[SCHEDULED], containerStatuses=[waiting("ContainerCreating")]
    )
    assert conditions(seen(made(mounting, warnings=(event,))))["Ready"]["reason"] == "ModelNotFound"


@pytest.mark.parametrize("reason", ["ModelInvalid", "ModelNotFound", "OOMKilled", "RankExited"])
def test_what_the_supervisor_reports_is_named(reason: str) -> None:
    failure = Failure("chat-0-0", 0, reason, -9, "model.safetensors: truncated", 5.0)
    report = GroupReport("r", "FAILED", restarts=3, last_failure=failure, pod_uid="uid-chat-0-0")
    planned = seen(made(running({"restartCount": 0, "state": {"running": {}}}), reports={0: report}))
    found = conditions(planned)
    assert found["Ready"]["reason"] == reason and "model.safetensors: truncated" in found["Ready"]["message"]
    assert planned.status is not None
    group = planned.status["groups"][0]
    assert (group["state"], group["restarts"], group["lastFailure"]["reason"]) == ("Failed", 3, reason)


def test_what_to_do_is_said_beside_what_happened() -> None:
    failure = Failure("chat-0-0", -1, "StartFailed", 0, "the processes could not be started", 5.0)
    report = GroupReport("r", "FAILED", restarts=1, last_failure=failure)
    message = conditions(seen(made(running({"state": {"running": {}}}), reports={0: report})))["Ready"]["message"]
    assert message.startswith("chat-0-0: the processes could not be started; ") and "limit of memory" in message


def test_a_group_that_starts_again_after_a_failure_shows_both() -> None:
    failure = Failure("chat-0-0", 0, "RankExited", -9, "rank 0: killed", 5.0)
    report = GroupReport("r", "LOADING", progress_percent=5, restarts=1, last_failure=failure)
    planned = seen(made(running({"state": {"running": {}}}), reports={0: report}))
    assert planned.status is not None
    assert conditions(planned)["Ready"]["reason"] == "RankExited"
    assert planned.status["groups"][0]["state"] == "Loading"


def test_what_ranks_say_now_counts_more_than_how_the_container_ended_before() -> None:
    failure = Failure("chat-0-0", 0, "ModelInvalid", 1, "config.json: not JSON", 5.0)
    report = GroupReport("r", "FAILED", last_failure=failure)
    container = {**ended("OOMKilled", 137), "state": {"running": {}}}
    assert conditions(seen(made(running(container), reports={0: report})))["Ready"]["reason"] == "ModelInvalid"


def test_an_event_of_an_object_before_of_the_same_name_does_not_count() -> None:
    event = WarningEvent("StatefulSet", "chat-0", "FailedCreate", QUOTA, 1.0)
    snapshot = made(warnings=(event,))
    snapshot.statefulsets[0]["metadata"]["creationTimestamp"] = "1970-01-01T00:00:02Z"
    assert conditions(seen(snapshot))["Degraded"]["status"] == "False"


def test_the_report_of_a_pod_that_is_gone_does_not_count() -> None:
    failure = Failure("chat-0-0", 0, "ModelInvalid", 1, "bad", 5.0)
    report = GroupReport("r", "FAILED", last_failure=failure, pod_uid="uid-of-another")
    found = conditions(seen(made(running({"state": {"running": {}}}), reports={0: report})))
    assert found["Degraded"]["status"] == "False"


def test_the_status_has_the_digest_of_the_model_once_its_weights_are_read() -> None:
    for digest in ("", "0d15ea5e"):
        report = GroupReport("r", "SERVING", model=ModelInfo(digest, "LlamaForCausalLM"))
        planned = seen(made(running({"state": {"running": {}}}), reports={0: report}))
        assert planned.status is not None
        assert planned.status["model"].get("digest", "") == digest


@pytest.mark.parametrize(
    ("phase", "times", "present"),
    [
        ("STARTING", {}, True),
        ("SERVING", {}, False),  # it has served since, and its pods are not ready for another reason
        ("ASLEEP", {}, False),
        ("STARTING", {"creationTimestamp": "1970-01-01T00:00:06Z"}, False),
        ("STARTING", {"creationTimestamp": "1970-01-01T00:00:04Z"}, True),
        ("STARTING", {"deletionTimestamp": "1970-01-01T00:02:06Z", "deletionGracePeriodSeconds": 120}, False),
        ("STARTING", {"deletionTimestamp": "1970-01-01T00:02:04Z", "deletionGracePeriodSeconds": 120}, True),
    ],
)
def test_a_failure_of_before_is_not_the_present_cause(phase: str, times: Json, present: bool) -> None:
    failure = Failure("chat-0-1", 1, "RankExited", -9, "rank 1 ended", 5.0)
    report = GroupReport("r", phase, restarts=1, last_failure=failure)
    both = {"parallelism": {"pipeline": 2}}
    first, second = (pod(f"chat-0-{i}", phase="Running", conditions=[SCHEDULED]) for i in range(2))
    second["metadata"] |= times
    planned = seen(made(first, second, spec=both, reports={0: report}), **both)
    assert (conditions(planned)["Ready"]["reason"] == "RankExited") == present
    assert planned.status is not None
    assert planned.status["groups"][0]["lastFailure"]["reason"] == "RankExited", "it stays as the last one"


@pytest.mark.parametrize("deleted", [False, True])
def test_a_node_that_does_not_answer_is_named(deleted: bool) -> None:
    lost = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "False")])
    if deleted:
        lost["metadata"]["deletionTimestamp"] = "1970-01-01T00:02:00Z"
    planned = seen(made(lost, lost_nodes={"node-1": LostNode("unreachable", 5.0)}))
    found = conditions(planned)
    for kind in ("Ready", "Degraded"):
        assert (found[kind]["reason"], found[kind]["message"]) == ("NodeLost", "chat-0-0: node node-1 is unreachable")
    assert planned.status is not None and planned.status["groups"][0]["state"] == "Failed"


def test_a_node_of_the_only_router_is_named() -> None:
    router = pod("chat-router-x", phase="Running", conditions=[SCHEDULED, condition("Ready", "False")])
    router["metadata"]["labels"] = {"octavo.dev/component": "router", "octavo.dev/service": "chat"}
    found = conditions(seen(Snapshot(pods=(router,), lost_nodes={"node-1": LostNode("unreachable", 5.0)})))
    assert found["RouterReady"]["message"] == "chat-router-x: node node-1 is unreachable"


def test_progress_shows_in_the_reason_and_in_the_groups() -> None:
    report = GroupReport(
        "r", "LOADING", progress_percent=71, model=ModelInfo(architecture="LlamaForCausalLM", size_bytes=9)
    )
    planned = seen(made(running({"state": {"running": {}}}), reports={0: report}))
    assert planned.status is not None
    assert conditions(planned)["Ready"]["message"] == "chat-0: Loading 71 %"
    assert planned.status["groups"][0]["progress"] == 71
    expected = {"uri": "bundled://smollm2-135m-instruct", "architecture": "LlamaForCausalLM", "sizeBytes": 9}
    assert planned.status["model"] == expected
    assert planned.requeue_after == 2.0


def test_how_ranks_reach_each_other_and_their_release_show_in_the_groups_once_they_are_known() -> None:
    for report, shown in (
        (GroupReport("r", "LOADING"), {}),
        (GroupReport("r", "WARMING", collective="gloo"), {"collective": "gloo"}),
        (GroupReport("r", "SERVING", activations="grpc"), {"activations": "grpc"}),
        (GroupReport("r", "SERVING", release="7.0.0"), {"release": "7.0.0"}),
    ):
        planned = seen(made(running({"state": {"running": {}}}), reports={0: report}))
        assert planned.status is not None
        group = planned.status["groups"][0]
        assert {key: group[key] for key in ("collective", "activations", "release") if key in group} == shown


def test_a_serving_group_is_ready_whatever_happened_before() -> None:
    failure = Failure("chat-0-0", 0, "RankExited", -9, "killed", 5.0)
    report = GroupReport("r", "SERVING", restarts=1, last_failure=failure)
    ready = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])
    planned = seen(made(ready, reports={0: report}))
    found = conditions(planned)
    assert {kind: entry["status"] for kind, entry in found.items()} == {
        "Ready": "True",
        "Progressing": "False",
        "ModelLoaded": "True",
        "RouterReady": "True",
        "UpToDate": "True",
        "Degraded": "False",
        "SpecSupported": "True",
        "Reconciled": "True",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert planned.requeue_after is None and planned.status is not None
    assert planned.status["groups"][0]["lastFailure"]["reason"] == "RankExited"


def test_a_group_that_sleeps_stays_ready_and_shows_that_it_does() -> None:
    ready = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])
    for phase, state in (("ASLEEP", "Asleep"), ("SERVING", "Serving")):
        planned = seen(made(ready, reports={0: GroupReport("r", phase)}))
        assert conditions(planned)["Ready"]["status"] == "True" and planned.status is not None
        assert planned.status["groups"][0]["state"] == state


def test_a_service_without_a_router_is_not_ready_and_says_so() -> None:
    ready = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])
    snapshot = made(ready)
    found = conditions(seen(Snapshot(statefulsets=snapshot.statefulsets, pods=(ready,))))
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "RouterStarting")


def test_a_broken_router_is_named() -> None:
    router = pod("chat-router-x", phase="Pending", conditions=[SCHEDULED], containerStatuses=[waiting("ErrImagePull")])
    router["metadata"]["labels"] = {"octavo.dev/component": "router", "octavo.dev/service": "chat"}
    found = conditions(seen(Snapshot(pods=(router,))))
    assert found["RouterReady"]["reason"] == "ImagePullBackOff" and found["Degraded"]["status"] == "True"


def test_a_secret_that_the_operator_is_about_to_make_is_no_cause() -> None:
    router = pod(
        "chat-router-x", phase="Pending", conditions=[SCHEDULED], containerStatuses=[waiting("PodInitializing")]
    )
    router["metadata"]["labels"] = {"octavo.dev/component": "router", "octavo.dev/service": "chat"}
    for message in (
        'MountVolume.SetUp failed for volume "tls" : secret "chat-router-tls" not found',
        "Unable to attach or mount volumes: unmounted volumes=[tls], unattached volumes=[tmp tls keys]: secret",
    ):
        event = WarningEvent("Pod", "chat-router-x", "FailedMount", message, 1.0)
        found = conditions(seen(Snapshot(pods=(router,), warnings=(event,))))
        assert found["RouterReady"]["reason"] == "RouterStarting" and found["Degraded"]["status"] == "False"


def test_one_of_two_groups_keeps_the_service_ready_and_degraded() -> None:
    ready = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])
    one = made(ready)
    second = {**one.statefulsets[0], "metadata": {**one.statefulsets[0]["metadata"], "name": "chat-1", "uid": "u1"}}
    second["metadata"]["labels"] = {**second["metadata"]["labels"], "octavo.dev/group": "1"}
    broken = pod("chat-1-0", 1, owner="u1", **PODS["ImagePullBackOff"]["status"])
    both = Snapshot(statefulsets=(one.statefulsets[0], second), pods=(*one.pods, broken))
    found = conditions(seen(both, replicas=2))
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("True", "PartiallyAvailable")
    assert (found["Degraded"]["status"], found["Degraded"]["reason"]) == ("True", "ImagePullBackOff")


def test_a_transition_time_moves_only_with_its_status() -> None:
    first = seen(made(PODS["ImagePullBackOff"]))
    again = plan(service(status=dict(first.status or {})), made(PODS["OOMKilled"]), Options(), 1_750.0)
    ready = pod("chat-0-0", phase="Running", conditions=[SCHEDULED, condition("Ready", "True")])
    third = plan(service(status=dict(again.status or {})), made(ready), Options(), 20_000.0)
    times = [conditions(each)["Ready"]["lastTransitionTime"] for each in (first, again, third)]
    assert times[0] == times[1] == "1970-01-01T00:16:40Z" and times[2] == "1970-01-01T05:33:20Z"


def test_events_are_made_of_transitions_alone() -> None:
    first = seen(made(PODS["ImagePullBackOff"]))
    assert [(event.type, event.reason) for event in first.events] == [("Warning", "ImagePullBackOff")]
    same = plan(service(status=dict(first.status or {})), made(PODS["ImagePullBackOff"]), Options(), 1_700.0)
    assert same.events == ()
    other = plan(service(status=dict(same.status or {})), made(PODS["OOMKilled"]), Options(), 1_750.0)
    assert [(event.type, event.reason) for event in other.events] == [("Warning", "OOMKilled")]


def test_the_revision_of_the_snapshot_is_the_desired_one() -> None:
    assert made().statefulsets[0]["metadata"]["labels"]["octavo.dev/revision"] == worker_revision(service())


def test_a_pod_that_a_finalizer_keeps_is_named_with_it_while_its_group_waits_for_another() -> None:
    held = pod("chat-0-0", phase="Failed")
    held["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    planned = seen(made(trim({"kind": "Pod", **held})))
    for kind in ("Ready", "Degraded"):
        found = conditions(planned)[kind]
        assert found["reason"] == "PodHeld"
        assert "chat-0-0" in found["message"] and "kueue.x-k8s.io/managed" in found["message"]
    draining = {**held, "metadata": {**held["metadata"], "deletionGracePeriodSeconds": 120}}
    assert conditions(seen(made(trim({"kind": "Pod", **draining}))))["Ready"]["reason"] != "PodHeld"
