"""Single pods that must go so that their group can mend: what pods cannot do for themselves."""

from collections.abc import Iterable

from octavo.operator import names
from octavo.operator.actions import Delete
from octavo.operator.groups import Group, condition, deleting, owned_by, ready, unix
from octavo.operator.snapshot import Object

LOST_S = 20.0  # a pod that is overdue by this much is on a node that does not answer


def pods_to_delete(groups: Iterable[Group], lost_nodes: frozenset[str], now: float) -> tuple[Delete, ...]:
    """Pods to delete now, each with its reason."""
    return tuple(found for group in groups for pod in group.pods if (found := _judge(group, pod, lost_nodes, now)))


def next_check(groups: Iterable[Group], lost_nodes: frozenset[str], now: float) -> float | None:
    """Seconds until the next pod may have to go because of the time alone; None if none may."""
    due = [time for group in groups for pod in group.pods if (time := _goes_at(group, pod, lost_nodes)) is not None]
    return max(1.0, min(due) - now) if due else None


def _judge(group: Group, pod: Object, lost_nodes: frozenset[str], now: float) -> Delete | None:
    lost_at = _lost_at(pod, lost_nodes)
    if lost_at is not None:
        return _delete(pod, "its node does not answer, and it should be gone", 0) if now >= lost_at else None
    behind_at = _left_behind_at(group, pod)
    if behind_at is not None and now >= behind_at:
        return _delete(pod, "it serves with a leader that is gone, and the new leader waits for it")
    if not pod["metadata"].get("ownerReferences"):
        return _delete(pod, "its StatefulSet was deleted without it")
    if group.live is None or not owned_by(pod, group.live) or ready(pod):
        return None
    if _outdated(pod, group.live):
        return _delete(pod, "it is not of the group's template, and does not serve")
    if group.template is not None and names.label(pod, names.REVISION) != names.label(group.template, names.REVISION):
        return _delete(pod, "it is of another revision than the rest of its group, which cannot serve with it")
    return None


def _goes_at(group: Group, pod: Object, lost_nodes: frozenset[str]) -> float | None:
    return _lost_at(pod, lost_nodes) if deleting(pod) else _left_behind_at(group, pod)


def _lost_at(pod: Object, lost_nodes: frozenset[str]) -> float | None:
    """When a pod that is going may be removed by force. deletionTimestamp is when its grace ends."""
    if not deleting(pod):
        return None
    ends = unix(pod["metadata"]["deletionTimestamp"]) or 0.0
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    began = ends - grace
    return (began if pod["spec"].get("nodeName") in lost_nodes else ends) + LOST_S


def _left_behind_at(group: Group, pod: Object) -> float | None:
    """When a pod goes that is ready since before its leader was made: the former one goes on, on a node whose kubelet
    is gone."""
    leader = next((one for one in group.pods if names.label(one, names.POD_INDEX) == "0"), None)
    if leader is None or deleting(leader) or ready(leader) or not ready(pod):
        return None
    made = unix(leader["metadata"].get("creationTimestamp"))
    since = unix(condition(pod, "Ready").get("lastTransitionTime"))
    return made + LOST_S if made is not None and since is not None and since < made else None


def _outdated(pod: Object, live: Object) -> bool:
    status = live.get("status") or {}
    if status.get("observedGeneration") != live["metadata"].get("generation"):
        return False  # the controller has yet to look at the template
    present = status.get("updateRevision")
    own = (pod["metadata"].get("labels") or {}).get("controller-revision-hash")
    return bool(present and own and present != own)


def _delete(pod: Object, reason: str, grace_s: int | None = None) -> Delete:
    metadata = pod["metadata"]
    return Delete("v1", "Pod", metadata["name"], metadata["uid"], f"{metadata['name']}: {reason}", grace_s)
