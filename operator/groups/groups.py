"""The observed groups of one service: StatefulSets joined with their pods and reports."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from octavo.operator.groups import names
from octavo.operator.groups.snapshot import GroupReport, Object, Snapshot

STATUS_S = 2.0  # a kubelet sets the first conditions of a pod within so long of its start; times are whole seconds


@dataclass(frozen=True, slots=True)
class GangBackoff:
    """Back-off of a group that gave its nodes back, because some of its pods could not be scheduled."""

    attempts: int  # so far
    until_s: float  # Unix time at which all pods are created again
    scaled_to_zero: bool  # the StatefulSet has, or must have, 0 replicas


@dataclass(frozen=True, slots=True)
class Group:
    """A group index that is in use, by a StatefulSet or by pods of a deleted one."""

    index: int
    live: Object | None  # the StatefulSet; None: only pods remain
    pods: tuple[Object, ...]
    report: GroupReport | None  # of its current pod 0
    template: Object | None = None  # pod template of its revision; None: it is not kept, or only pods remain
    # Node of one of its pods that is being drained, and how that is known; empty: there is none. Of pods that are being
    # deleted only if the group is.
    drained: str = ""

    @property
    def size(self) -> int:
        """Desired number of pods."""
        template = self.template or (_template(self.live) if self.live else {"metadata": {}})
        pods = names.annotation({"metadata": {}, **template}, names.PODS)
        return int(pods) if pods.isdecimal() else 1

    @property
    def model_uri(self) -> str:
        """spec.model.uri of its revision; empty if its template is lost."""
        template = self.template or (_template(self.live) if self.live else {})
        return names.annotation({"metadata": {}, **template}, names.MODEL)

    @property
    def gang_backoff(self) -> GangBackoff | None:
        """The back-off in the StatefulSet's annotation; None: there is none, or it cannot be parsed."""
        if self.live is None:
            return None
        try:
            kept = json.loads(names.annotation(self.live, names.GANG_BACKOFF))
            return GangBackoff(
                int(kept["attempts"]), unix(kept["until"]) or 0.0, self.live["spec"].get("replicas") == 0
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def revision(self) -> str:
        """Revision of the group, also if its label is lost; empty if only pods remain."""
        if self.live is None:
            return ""
        return names.label(self.live, names.REVISION) or names.label(_template(self.live), names.REVISION)

    @property
    def served(self) -> bool:
        """True if the group has served. Also if its template is lost: the group could not be created again."""
        if self.live is None:
            return False
        noted = self.template is None or names.annotation(self.live, names.SERVED) == "true"
        # While no operator ran, nothing was noted.
        return self.serving or noted or any(was_ready(pod) for pod in self.pods if owned_by(pod, self.live))

    def down_since(self, now: float) -> float | None:
        """Unix time since which a group that has served does not; None: it serves, or never has."""
        if self.live is None or self.serving or not self.served:
            return None
        try:
            since = unix(names.annotation(self.live, names.DOWN_SINCE))
        except ValueError:
            since = None
        return now if since is None else since

    @property
    def draining(self) -> bool:
        """True if another group is to serve in its place before its node is drained. One that has never served leaves
        when it is evicted."""
        return bool(self.drained) and self.served and not self.terminating

    def drain_since(self, now: float) -> float:
        """Unix time since which the group is being replaced for a drain."""
        try:
            since = unix(names.annotation(self.live, names.DRAIN_SINCE)) if self.live else None
        except ValueError:
            since = None
        return now if since is None else since

    @property
    def deleted_at(self) -> float:
        """Unix time at which the last of its pods was deleted, though it may not have ended yet; -inf: none was."""
        deleted = (pod["metadata"] for pod in self.pods if deleting(pod))
        times = (
            (unix(meta["deletionTimestamp"]) or 0.0) - float(meta.get("deletionGracePeriodSeconds") or 0)
            for meta in deleted
        )
        return max(times, default=-math.inf)

    @property
    def terminating(self) -> bool:
        """True while the group is being deleted: its index and nodes are occupied, but it is no replica."""
        return self.live is None or deleting(self.live)

    @property
    def owner_unknown(self) -> bool:
        """True if owned pods exist without their StatefulSet: it is new and not cached yet, or just deleted."""
        if self.live is not None:
            return False
        return any(pod["metadata"].get("ownerReferences") and not deleting(pod) for pod in self.pods)

    @property
    def serving(self) -> bool:
        """True if all pods are ready: pods of a group are ready exactly while it serves."""
        if self.terminating or self.live is None:
            return False
        own = [pod for pod in self.pods if owned_by(pod, self.live)]
        return sum(ready(pod) and not deleting(pod) for pod in own) >= self.size > 0


def groups(service: str, snapshot: Snapshot, templates: Mapping[str, Object]) -> tuple[Group, ...]:
    """All groups of a service, by index. templates: the kept pod templates, by revision."""
    sets = {}
    for item in snapshot.statefulsets:  # by their names, which outlive labels
        index = _index(item["metadata"]["name"].removeprefix(f"{service}-"))
        if index is not None and item["metadata"]["name"] == names.group(service, index):
            sets[index] = item
    pods: dict[int, list[Object]] = {}
    for pod in sorted(snapshot.pods, key=lambda pod: str(pod["metadata"]["name"])):
        index = _index(names.label(pod, names.GROUP))
        if index is not None and names.label(pod, names.COMPONENT) == "worker":
            pods.setdefault(index, []).append(pod)
    found = (_group(index, sets.get(index), tuple(pods.get(index, ())), snapshot) for index in sorted(sets | pods))
    return tuple(replace(group, template=templates.get(group.revision)) for group in found)


def _group(index: int, live: Object | None, pods: tuple[Object, ...], snapshot: Snapshot) -> Group:
    report = snapshot.reports.get(index)
    if report and report.pod_uid and report.pod_uid not in {pod["metadata"].get("uid") for pod in pods}:
        report = None
    return Group(index, live, pods, report, drained=_drained(live, pods, snapshot.draining_nodes or {}))


def _drained(live: Object | None, pods: Iterable[Object], nodes: Mapping[str, str]) -> str:
    """The first node of the group's pods that is being drained, and how that is known; empty: there is none."""
    if live is not None and not deleting(live):
        pods = (pod for pod in pods if owned_by(pod, live) and not deleting(pod))
    on = (pod["spec"].get("nodeName") for pod in pods)
    return next((f"node {node} {nodes[node]}" for node in on if node in nodes), "")


def _template(live: Object) -> Object:
    """The pod template of a StatefulSet as it is, with metadata."""
    return {"metadata": {}, **(live["spec"].get("template") or {})}


def _index(label: str) -> int | None:
    return int(label) if label.isdecimal() else None


def deleting(item: Object) -> bool:
    """True if the object has a deletionTimestamp."""
    return bool(item["metadata"].get("deletionTimestamp"))


def owned_by(pod: Object, owner: Object) -> bool:
    """True if the pod's owner has this uid; an earlier object of the same name has another."""
    return is_owned(pod, owner["metadata"].get("uid"))


def is_owned(item: Object, uid: str | None) -> bool:
    """True if the object has an owner of this uid."""
    references: Iterable[Object] = item["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == uid for reference in references)


def condition(item: Object, kind: str) -> Object:
    """The condition of this type; {} if there is none."""
    for entry in (item.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return entry  # type: ignore[no-any-return]  # JSON
    return {}


def ready(pod: Object) -> bool:
    """True if the condition Ready is."""
    return condition(pod, "Ready").get("status") == "True"


def was_ready(pod: Object) -> bool:
    """True if the condition Ready is not, but has been: it became false after the kubelet had started the pod."""
    found, started = condition(pod, "Ready"), unix((pod.get("status") or {}).get("startTime"))
    since = unix(found.get("lastTransitionTime"))
    if found.get("status") != "False" or since is None or started is None:
        return False
    return since > started + STATUS_S


def unix(time: str | None) -> float | None:
    """Unix time in seconds of a Kubernetes timestamp; None for None."""
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() if time else None


def timestamp(time_s: float) -> str:
    """Kubernetes timestamp of a Unix time in seconds."""
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
