"""Events that tell why pods are missing or do not run, and whether an autoscaler looks after them.

They are read from the API server, and only of objects in trouble: StatefulSets that lack pods, pods without a node, and
pods on whose node no container runs.
"""

import logging
import time
from dataclasses import dataclass

from octavo.operator.cluster.kube import EVENT, Kube, KubeError, Object
from octavo.operator.groups.groups import condition, deleting, unix
from octavo.operator.groups.snapshot import WarningEvent
from octavo.operator.planning.scheduling import SCALE_UP_EVENTS

RECHECK_S = 5.0
MOST_OBJECTS = 8  # of a service, whose events are read at one look
STUCK_AFTER_S = 5.0  # of a pending pod
AUTOSCALERS = ("cluster-autoscaler", "karpenter")  # components that record events on pods without a node

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Events:
    """The last events of one service. autoscaled: an autoscaler has recorded one of a pod that has no node now."""

    warnings: tuple[WarningEvent, ...] = ()
    autoscaled: bool = False
    _read_at: float = float("-inf")

    async def update(self, kube: Kube, namespace: str, sets: tuple[Object, ...], pods: tuple[Object, ...]) -> None:
        """Read them again if that is due."""
        waiting = [pod for pod in pods if _is_unschedulable(pod)]
        stuck = [pod for pod in pods if _is_stuck(pod)]
        self.autoscaled = self.autoscaled and bool(waiting)
        suspects = [*(item for item in sets if _lacks_pods(item)), *waiting, *stuck]
        if not suspects:
            self.warnings = ()
        elif time.monotonic() - self._read_at > RECHECK_S:
            self._read_at = time.monotonic()
            read = [(item, await _events(kube, namespace, item)) for item in suspects[:MOST_OBJECTS]]
            self.warnings = tuple(warning for item, found in read for warning in _newest(item, found))
            self.autoscaled |= any(
                _is_of_autoscaler(event) for item, found in read if item in waiting for event in found
            )


async def _events(kube: Kube, namespace: str, item: Object) -> list[Object]:
    """Events of an object. Selected by uid: names can be reused."""
    chosen = f"involvedObject.uid={item['metadata']['uid']}"
    try:
        events, _ = await kube.list(EVENT, namespace, fieldSelector=chosen, limit="50")
    except KubeError as error:
        log.warning("events of %s %s cannot be read: %s", item["kind"], item["metadata"]["name"], error)
        return []
    return events


def _newest(item: Object, events: list[Object]) -> list[WarningEvent]:
    """The newest event of each reason that counts."""
    found: dict[str, WarningEvent] = {}
    for event in filter(_counts, events):
        warning = _warning(item, event)
        if warning.reason not in found or found[warning.reason].time_s <= warning.time_s:
            found[warning.reason] = warning
    return list(found.values())


def _is_of_autoscaler(event: Object) -> bool:
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    return any(name in component for name in AUTOSCALERS)


def _counts(event: Object) -> bool:
    """Warnings, but not that the kubelet waits before it pulls an image again; and that an autoscaler adds a node."""
    if event.get("type") != "Warning":
        return event.get("reason") in SCALE_UP_EVENTS
    return not str(event.get("message", "")).startswith(("Error: ImagePullBackOff", "Error: ErrImagePull"))


def _lacks_pods(stateful_set: Object) -> bool:
    return int((stateful_set.get("status") or {}).get("replicas") or 0) < int(stateful_set["spec"].get("replicas", 1))


def _is_unschedulable(pod: Object) -> bool:
    found = condition(pod, "PodScheduled")
    return found.get("status") == "False" and found.get("reason") == "Unschedulable" and not deleting(pod)


def _is_stuck(pod: Object) -> bool:
    """True if no container runs on the pod's node after STUCK_AFTER_S: a volume, Secret or sandbox is missing."""
    status = pod.get("status") or {}
    placed = condition(pod, "PodScheduled").get("status") == "True"
    started = any("running" in (c.get("state") or {}) for c in status.get("containerStatuses") or ())
    age_s = time.time() - (unix(pod["metadata"].get("creationTimestamp")) or 0.0)
    return placed and not started and status.get("phase") == "Pending" and age_s > STUCK_AFTER_S


def _warning(item: Object, event: Object) -> WarningEvent:
    seen = event.get("lastTimestamp") or (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    return WarningEvent(
        kind=item["kind"],
        name=item["metadata"]["name"],
        reason=str(event.get("reason", "")),
        message=str(event.get("message", "")),
        time_s=unix(seen or event["metadata"].get("creationTimestamp")) or 0.0,
    )
