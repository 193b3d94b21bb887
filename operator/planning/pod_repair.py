"""Pod repair: pods to delete so that their group can recover.

A terminating pod is deleted by force only where its node is lost: its Node object is gone, or has been unreachable or
not ready for as long as spec.disruption says. On a node that is Ready its kubelet ends the pod. If a process does not
exit, for example one that hangs in a driver, it still holds its GPU, so the pod stays, and an event names it. So does a
pod that another controller's finalizer keeps.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from octavo.operator.api.v1alpha1 import Disruption
from octavo.operator.groups import names
from octavo.operator.groups.groups import Group, condition, deleting, owned_by, ready, unix
from octavo.operator.groups.snapshot import LostNode, Object
from octavo.operator.planning.actions import Delete, Event

LOST_S = 20.0  # after its deletion, a pod on a lost node is deleted by force; after its grace period, a pod is overdue
LOOK_S, MAX_LOOK_S = 10.0, 300.0  # interval of looks at the node of an overdue pod: half the time since its end


@dataclass(frozen=True, slots=True)
class PodJudge:
    """Decides on the pods of a service. lost_nodes: by name; times are Unix times in seconds."""

    lost_nodes: Mapping[str, LostNode]
    disruption: Disruption

    def pods_to_delete(self, groups: Iterable[Group], now: float) -> tuple[Delete, ...]:
        """Pods to delete, each with its reason."""
        return tuple(found for group in groups for pod in group.pods if (found := self._decide(group, pod, now)))

    def next_check(self, groups: Iterable[Group], now: float) -> float | None:
        """Seconds until another look at the pods may decide differently without a change of a pod; None: never."""
        due = [time for group in groups for pod in group.pods if (time := self._look_at(group, pod, now)) is not None]
        return max(1.0, min(due) - now) if due else None

    def events(self, groups: Iterable[Group], now: float) -> Iterator[Event]:
        """A warning for each pod whose termination does not end."""
        for pod in (pod for group in groups for pod in group.pods):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if held := holding_finalizers(pod):
                yield Event("Warning", "PodHeld", f"{name}: {held_by(held)}")
            elif _is_terminating(pod) and node not in self.lost_nodes and now >= _ends_s(pod) + LOST_S:
                message = (
                    f"{name}: has not ended, although its grace period is over and its node {node} is not known to be "
                    "lost: see its processes there. It is not deleted by force, since they may hold devices"
                )
                yield Event("Warning", "PodNotTerminating", message)

    def _decide(self, group: Group, pod: Object, now: float) -> Delete | None:
        if deleting(pod):
            lost_at = self._lost_at(pod)
            return _delete(pod, self._lost_because(pod), 0) if lost_at is not None and now >= lost_at else None
        behind_at = _left_behind_at(group, pod)
        if behind_at is not None and now >= behind_at:
            return _delete(pod, "it is connected to a deleted leader pod, and the new leader waits for it")
        if not pod["metadata"].get("ownerReferences"):
            return _delete(pod, "it is orphaned: its StatefulSet was deleted")
        if group.live is None or not owned_by(pod, group.live) or ready(pod):
            return None
        if _outdated(pod, group.live):
            return _delete(pod, "its template is outdated, and it does not serve")
        if group.template is not None and names.label(pod, names.REVISION) != names.label(
            group.template, names.REVISION
        ):
            return _delete(pod, "its revision differs from its group's, so that the group cannot serve")
        return None

    def _look_at(self, group: Group, pod: Object, now: float) -> float | None:
        """Time of the next look at a pod. Nodes are not watched: the node of an overdue pod is looked at again."""
        if not deleting(pod):
            return _left_behind_at(group, pod)
        if not _is_terminating(pod):
            return None
        lost_at, overdue_s = self._lost_at(pod), now - _ends_s(pod)
        if lost_at is not None:
            return lost_at
        return now + min(max(LOOK_S, overdue_s / 2), MAX_LOOK_S) if overdue_s >= LOST_S else _ends_s(pod) + LOST_S

    def _lost_at(self, pod: Object) -> float | None:
        """Time from which a terminating pod is deleted by force; None: it is left to its node's kubelet."""
        node = self.lost_nodes.get(pod["spec"].get("nodeName", ""))
        if node is None or not _is_terminating(pod):
            return None
        stays_s = {"unreachable": self.disruption.node_lost_s, "not ready": self.disruption.not_ready_s}
        began = _ends_s(pod) - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        return max(began + LOST_S, node.since_s + stays_s.get(node.state, 0))

    def _lost_because(self, pod: Object) -> str:
        node = pod["spec"]["nodeName"]
        return f"its node {node} is {self.lost_nodes[node].state}"


def holding_finalizers(pod: Object) -> list[str]:
    """Finalizers of a pod that has ended: another deletion would change nothing. Its kubelet, or a deletion by force,
    has set the grace period to 0."""
    return [] if _is_terminating(pod) or not deleting(pod) else list(pod["metadata"].get("finalizers") or ())


def held_by(finalizers: list[str]) -> str:
    """What is said of such a pod."""
    names = ", ".join(finalizers)
    return f"has ended and is kept by the finalizer {names}, which the controller that set it must remove"


def _is_terminating(pod: Object) -> bool:
    """True if the pod is being deleted and its kubelet has not confirmed its end."""
    return deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds") != 0


def _ends_s(pod: Object) -> float:
    """End of a terminating pod's grace period."""
    return unix(pod["metadata"]["deletionTimestamp"]) or 0.0


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
