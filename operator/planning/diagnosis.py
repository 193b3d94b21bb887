"""Diagnosis: the cause why a group or the routers do not serve, from pod statuses, events and the group's report.

The most specific cause wins: first what prevents a pod from running, then the exit of its container, then the report of
the group's leader.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from octavo.operator.groups import names
from octavo.operator.groups.groups import Group, condition, deleting, ready, timestamp, unix
from octavo.operator.groups.snapshot import Failure, LostNode, Object, WarningEvent
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.pod_repair import held_by, holding_finalizers
from octavo.operator.planning.scheduling import unscheduled
from octavo.shared.failure_reasons import FailureReason

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_BENIGN = frozenset({"ContainerCreating", "PodInitializing", ""})
NODE_LOST = "NodeLost"
_MAX_MESSAGE = 600  # characters of a message in the status
ATTACHED_S = 60.0  # in which a volume is detached from another node and attached to the pod's


def group_cause(
    group: Group, name: str, warnings: Iterable[WarningEvent], lost_nodes: Mapping[str, LostNode] = MappingProxyType({})
) -> Cause | None:
    """Cause why a group does not serve; None if it serves or is starting. name: of its StatefulSet."""
    if group.serving or group.terminating:
        return None
    if group.gang_backoff and group.gang_backoff.scaled_to_zero:
        return Cause(
            "Unschedulable",
            f"{name}: only some of its {group.size} pods could be scheduled; it is scaled to zero and starts again at "
            f"{timestamp(group.gang_backoff.until_s)}",
        )
    if cause := _lost(group.pods, lost_nodes):
        return cause
    found = tuple(warnings)
    if len(group.pods) < group.size and (cause := _not_created(group, name, found)):
        return cause
    reported = _reported(group)
    # The other pods wait for a pod without a node, so unscheduled pods come first.
    for pod in sorted(
        group.pods, key=lambda pod: (condition(pod, "PodScheduled").get("status") == "True", started(pod))
    ):
        if cause := pod_cause(pod, found):
            # While the container runs, the group's report is newer than the container's last state.
            return reported if reported and (cause.reason == "CrashLoop" or started(pod)) else cause
    return reported


def router_cause(
    deployment: Object | None,
    pods: Iterable[Object],
    warnings: Iterable[WarningEvent],
    lost_nodes: Mapping[str, LostNode] = MappingProxyType({}),
) -> Cause | None:
    """Cause why a router is not ready; None if the routers are ready or starting.

    A pod that has ended, e.g. by an eviction, is the cause only while no other pod has taken its place: a ReplicaSet
    keeps such pods for long.
    """
    found = tuple(warnings)
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    present = [pod for pod in newest if not deleting(pod)]
    running = [pod for pod in present if not ended(pod)]
    for pod in running or present:
        if cause := pod_cause(pod, found):
            return cause
    failure = condition(deployment or {}, "ReplicaFailure")
    if deployment and failure.get("status") == "True":
        return _creation(f"Deployment {deployment['metadata']['name']}", str(failure.get("message", "")))
    return _lost(running, lost_nodes)


def _lost(pods: Iterable[Object], lost_nodes: Mapping[str, LostNode]) -> Cause | None:
    """Cause if a pod that is not ready, or that is deleted, is on a node that is lost."""
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in lost_nodes and (deleting(pod) or not ready(pod)):
            return Cause(NODE_LOST, f"{pod['metadata']['name']}: node {node} is {lost_nodes[node].state}")
    return None


def pod_cause(pod: Object, warnings: tuple[WarningEvent, ...]) -> Cause | None:
    """Cause why a pod is not ready; None if it is ready, starting, or being deleted and not held by a finalizer."""
    name = pod["metadata"]["name"]
    if held := holding_finalizers(pod):
        return Cause("PodHeld", f"{name}: {held_by(held)}")
    if deleting(pod) or ready(pod):
        return None
    own = _own(pod, warnings)
    if cause := unscheduled(pod, _short(condition(pod, "PodScheduled").get("message", "")), own):
        return cause
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        if cause := _container(name, container, own):
            return cause
    if status.get("phase") == "Failed":
        return Cause(
            str(status.get("reason") or "PodFailed"), f"{name}: {_short(status.get('message') or 'the pod failed')}"
        )
    return _unmounted(pod, own)


def _own(pod: Object, warnings: tuple[WarningEvent, ...]) -> tuple[WarningEvent, ...]:
    """The events of this pod."""
    return tuple(event for event in warnings if _is_about(event, "Pod", pod, event.reason))


def _container(pod: str, container: Object, events: tuple[WarningEvent, ...]) -> Cause | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if reason in _IMAGE:
        why = _pull_error(events) or waiting.get("message") or reason
        return Cause("ImagePullBackOff", f"{pod}: cannot pull {container.get('image')}: {_short(why)}")
    last = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if last and (container.get("restartCount", 0) > 0 or "terminated" in state):
        return _ended(pod, last)
    if reason not in _BENIGN:
        return Cause(reason, f"{pod}: {_short(waiting.get('message') or reason)}")
    return None


def _pull_error(events: tuple[WarningEvent, ...]) -> str:
    """Why the image cannot be pulled: the container's status says so only between two attempts."""
    return next((event.message for event in events if event.reason == "Failed" and "pull" in event.message), "")


def _ended(pod: str, last: Object) -> Cause | None:
    code = last.get("exitCode", 0)
    if last.get("reason") == "OOMKilled":
        return Cause(
            FailureReason.OOM_KILLED.value,
            f"{pod}: the container exceeded its memory limit; raise spec.resources.limits.memory",
        )
    if code == 0:
        return None
    return Cause(
        "CrashLoop",
        f"{pod}: the container exited with code {code}: {_short(_last_line(last) or last.get('reason'))}",
    )


def _last_line(last: Object) -> str:
    lines = str(last.get("message") or "").strip().splitlines()
    return lines[-1] if lines else ""


def _unmounted(pod: Object, events: tuple[WarningEvent, ...]) -> Cause | None:
    """Cause from the pod's events about volumes. A Secret that the operator is about to create is no cause."""
    name = pod["metadata"]["name"]
    if condition(pod, "PodScheduled").get("status") != "True" or started(pod):
        return None
    for event in events:
        if event.reason == "FailedAttachVolume":  # for a while in the course of things: the earlier pod's node detaches
            since = unix(condition(pod, "PodScheduled").get("lastTransitionTime")) or 0.0
            return Cause("FailedAttachVolume", f"{name}: {_short(event.message)}", since + ATTACHED_S)
    for event in events:
        if event.reason != "FailedMount" or "secret" in event.message:
            continue
        if "hostPath type check failed" in event.message:
            return Cause(
                FailureReason.MODEL_NOT_FOUND.value,
                f"{name}: the folder does not exist on the node: {_short(event.message)}",
            )
        return Cause("VolumePending", f"{name}: {_short(event.message)}")
    return None


def ended(pod: Object) -> bool:
    """True for a pod that will not run again."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def started(pod: Object) -> bool:
    """True if a container of the pod runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in (container.get("state") or {}) for container in statuses)


def _is_about(event: WarningEvent, kind: str, item: Object, reason: str) -> bool:
    """True if the event is about this object, not about an earlier one of the same name."""
    created_at = unix(item["metadata"].get("creationTimestamp")) or 0.0
    return (event.kind, event.name, event.reason) == (
        kind,
        item["metadata"]["name"],
        reason,
    ) and event.time_s >= created_at


def _not_created(group: Group, name: str, warnings: tuple[WarningEvent, ...]) -> Cause | None:
    for event in warnings:
        if group.live and _is_about(event, "StatefulSet", group.live, "FailedCreate"):
            return _creation(f"StatefulSet {name}", event.message)
    return None


def _creation(what: str, message: str) -> Cause:
    if "exceeded quota" in message:
        return Cause("QuotaExceeded", f"{what}: {_short(message)}")
    if "violates PodSecurity" in message:
        return Cause("PodSecurityViolation", f"{what}: {_short(message)}")
    return Cause("FailedCreate", f"{what}: {_short(message)}")


def _reported(group: Group) -> Cause | None:
    """The last failure in the group's report, unless it is of an earlier outage."""
    failure = group.report.last_failure if group.report else None
    if failure is None or _is_past(group, failure):
        return None
    message = f"{failure.pod}: {_short(failure.message)}"
    reason = FailureReason.known(failure.reason or FailureReason.UNKNOWN)
    if reason is None:  # a newer worker may report others
        return Cause(failure.reason, message)
    return Cause(reason.value, f"{message}; {reason.advice}")


def _is_past(group: Group, failure: Failure) -> bool:
    """True if the group has served since the failure, or waits for a pod that was created or deleted after it."""
    if group.report and group.report.phase in ("SERVING", "ASLEEP", "DRAINING"):
        return True
    return any(max(_created_s(pod), _deleted_s(pod)) > failure.time_s for pod in group.pods)


def _created_s(pod: Object) -> float:
    return unix(pod["metadata"].get("creationTimestamp")) or 0.0


def _deleted_s(pod: Object) -> float:
    """Unix time at which the deletion of a pod was asked for; 0: it is not being deleted. The timestamp is that of the
    end of the grace period."""
    at = unix(pod["metadata"].get("deletionTimestamp"))
    return 0.0 if at is None else at - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def is_worker(pod: Object) -> bool:
    """True for a worker pod, False for a router pod."""
    return names.label(pod, names.COMPONENT) == "worker"


def _short(message: object) -> str:
    text = " ".join(str(message).split())
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 3] + "..."
