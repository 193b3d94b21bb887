"""Pod repair: pods to delete so that their group can recover."""

from collections.abc import Iterable

from octavo.operator.groups import names
from octavo.operator.groups.groups import Group, condition, deleting, owned_by, ready, unix
from octavo.operator.groups.snapshot import Object
from octavo.operator.planning.actions import Delete

LOST_S = 20.0  # after the end of its grace period, a terminating pod's node is considered lost


def pods_to_delete(groups: Iterable[Group], lost_nodes: frozenset[str], now: float) -> tuple[Delete, ...]:
    """Pods to delete, each with its reason. now: Unix time in seconds."""
    return tuple(found for group in groups for pod in group.pods if (found := _decide(group, pod, lost_nodes, now)))


def next_check(groups: Iterable[Group], lost_nodes: frozenset[str], now: float) -> float | None:
    """Seconds until `pods_to_delete` may return another pod without a change; None: never."""
    due = [time for group in groups for pod in group.pods if (time := _goes_at(group, pod, lost_nodes)) is not None]
    return max(1.0, min(due) - now) if due else None


def _decide(group: Group, pod: Object, lost_nodes: frozenset[str], now: float) -> Delete | None:
    lost_at = _lost_at(pod, lost_nodes)
    if lost_at is not None:
        return _delete(pod, "its node does not respond, and its grace period is over", 0) if now >= lost_at else None
    behind_at = _left_behind_at(group, pod)
    if behind_at is not None and now >= behind_at:
        return _delete(pod, "it is connected to a deleted leader pod, and the new leader waits for it")
    if not pod["metadata"].get("ownerReferences"):
        return _delete(pod, "it is orphaned: its StatefulSet was deleted")
    if group.live is None or not owned_by(pod, group.live) or ready(pod):
        return None
    if _outdated(pod, group.live):
        return _delete(pod, "its template is outdated, and it does not serve")
    if group.template is not None and names.label(pod, names.REVISION) != names.label(group.template, names.REVISION):
        return _delete(pod, "its revision differs from its group's, so that the group cannot serve")
    return None


def _goes_at(group: Group, pod: Object, lost_nodes: frozenset[str]) -> float | None:
    return _lost_at(pod, lost_nodes) if deleting(pod) else _left_behind_at(group, pod)


def _lost_at(pod: Object, lost_nodes: frozenset[str]) -> float | None:
    """Unix time from which a terminating pod is deleted by force; deletionTimestamp is the end of its grace period."""
    if not deleting(pod):
        return None
    ends = unix(pod["metadata"]["deletionTimestamp"]) or 0.0
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    began = ends - grace
    return (began if pod["spec"].get("nodeName") in lost_nodes else ends) + LOST_S


def _left_behind_at(group: Group, pod: Object) -> float | None:
    """Unix time from which a pod is deleted that has been ready since before its leader pod was created: the earlier
    leader still runs, on a node without a kubelet."""
    leader = next((one for one in group.pods if names.label(one, names.POD_INDEX) == "0"), None)
    if leader is None or deleting(leader) or ready(leader) or not ready(pod):
        return None
    made = unix(leader["metadata"].get("creationTimestamp"))
    since = unix(condition(pod, "Ready").get("lastTransitionTime"))
    return made + LOST_S if made is not None and since is not None and since < made else None


def _outdated(pod: Object, live: Object) -> bool:
    status = live.get("status") or {}
    if status.get("observedGeneration") != live["metadata"].get("generation"):
        return False  # the StatefulSet controller has not observed the template yet
    present = status.get("updateRevision")
    own = (pod["metadata"].get("labels") or {}).get("controller-revision-hash")
    return bool(present and own and present != own)


def _delete(pod: Object, reason: str, grace_s: int | None = None) -> Delete:
    metadata = pod["metadata"]
    return Delete("v1", "Pod", metadata["name"], metadata["uid"], f"{metadata['name']}: {reason}", grace_s)
