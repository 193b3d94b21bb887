"""Reads one service's children into a Snapshot, from the caches.

In the steady state nothing is read from the API. Only for unhealthy objects there are further reads: events of
StatefulSets without pods, of stuck and of unschedulable pods, the nodes of pods that are terminating or not ready, and
StatefulSets that only their pods name. The status of a group is polled over gRPC: at each reconcile while it is not
ready, else once a minute. While a group is ready, ready routers are asked for their health page: at each reconcile
while they reach no group, else once a minute. Routers that need API keys are asked every ten seconds, also without a
group.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.operator.cluster.apply import owned_by
from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import (
    CHILD_KINDS,
    CONTROLLER_REVISION,
    EVENT,
    NODE,
    STATEFUL_SET,
    Kube,
    KubeError,
    Object,
)
from octavo.operator.cluster.status_client import get_router_page, get_statuses, router_report
from octavo.operator.groups import names
from octavo.operator.groups.groups import condition, ready, unix
from octavo.operator.groups.snapshot import (
    Failure,
    GroupReport,
    LostNode,
    ModelInfo,
    RouterReport,
    Snapshot,
    WarningEvent,
)
from octavo.operator.planning.routers.keys import POLL_S as KEYS_POLL_S
from octavo.operator.planning.routers.keys import has_keys
from octavo.operator.planning.scheduling import SCALE_UP_EVENTS
from octavo.proto.v1 import group_pb2

READY_POLL_S = 35.0
UNREADY_POLL_S = 1.5
ROUTER_POLL_S = 0.5  # of a router that reaches no group while one is ready: it connects within a second
RECHECK_S = 5.0  # events and nodes
AUTOSCALER_RECHECK_S = 20.0
AUTOSCALERS = ("cluster-autoscaler", "karpenter")  # components that record events on pods for which they add nodes
SILENT_POLL_S = 4.0  # of a router that needs keys and did not answer
KEYS_SLACK_S = 1.0  # a look that comes a little early asks too, so that none is skipped
STUCK_AFTER_S = 5.0  # of a pending pod: its warning events are then read

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PollState:
    """Last results of the polls of one service."""

    reports: dict[str, tuple[int, GroupReport]] = field(default_factory=dict)  # pod uid: group, answer
    polled_at: dict[str, float] = field(default_factory=dict)  # pod uid, of leaders and routers
    routers: dict[str, RouterReport] = field(default_factory=dict)  # pod uid
    has_ready_group: bool = False  # at the last poll of the routers
    warnings: tuple[WarningEvent, ...] = ()
    warnings_at: float = float("-inf")
    autoscaled: bool = False
    autoscaled_at: float = float("-inf")


class Observer:
    def __init__(self, kube: Kube, caches: Caches, certificates: CertificateKeeper) -> None:
        self._kube, self._caches, self._certificates = kube, caches, certificates
        self._polled: dict[str, PollState] = {}
        self._nodes: dict[str, tuple[float, LostNode | None]] = {}  # by name: monotonic time of the look, result
        self._nodes_forbidden = False

    def forget(self, service_uid: str) -> None:
        self._polled.pop(service_uid, None)

    async def snapshot(self, namespace: str, name: str, uid: str, conflicts: Iterable[tuple[str, str]]) -> Snapshot:
        """Observe a service. conflicts: (kind, name) of objects with other owners, as found by an apply."""
        key, polled = f"{namespace}/{name}", self._polled.setdefault(uid, PollState())
        children = [item for kind in CHILD_KINDS for item in self._caches.of_service(kind.kind, key)]
        foreign = {_named(item) for item in children if not owned_by(item, uid) and _is_our_name(name, item)}
        own = [item for item in children if owned_by(item, uid)]
        router = next(
            (i for i in own if i["kind"] == "Deployment" and i["metadata"]["name"] == names.router(name)), None
        )
        pods = tuple(self._caches.of_service("Pod", key))
        sets = tuple(item for item in own if item["kind"] == "StatefulSet")
        sets += await self._unlabelled(namespace, uid, pods, {item["metadata"]["uid"] for item in sets})
        await self._poll_leaders(uid, pods, polled)
        await self._poll_routers(pods, polled)
        await self._update_warnings(namespace, sets, pods, polled)
        return Snapshot(
            children=tuple(children),
            statefulsets=sets,
            revisions=tuple(item for item in own if item["kind"] == "ControllerRevision"),
            pods=pods,
            router=router,
            reports={group: report for group, report in polled.reports.values()},
            warnings=polled.warnings,
            foreign=frozenset(foreign | set(conflicts)),
            lost_nodes=await self._lost_nodes(pods),
            routers=dict(polled.routers),
            unreadable=self._caches.unreadable(namespace),
            autoscaled=await self._is_autoscaled(namespace, pods, polled),
        )

    async def _unlabelled(
        self, namespace: str, uid: str, pods: tuple[Object, ...], known: set[str]
    ) -> tuple[Object, ...]:
        """StatefulSets of the service that lost the label by which the cache finds them: their pods name them."""
        owners = {
            owner["uid"]: str(owner["name"])
            for pod in pods
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == STATEFUL_SET.kind and not pod["metadata"].get("deletionTimestamp")
        }
        found = [await self._kube.get(STATEFUL_SET, namespace, name) for it, name in owners.items() if it not in known]
        return tuple(
            item for item in found if item is not None and item["metadata"]["uid"] in owners and owned_by(item, uid)
        )

    async def _poll_leaders(self, uid: str, pods: tuple[Object, ...], polled: PollState) -> None:
        """Poll the leader pods that are due; drop the reports of deleted pods."""
        now, leaders = time.monotonic(), {pod["metadata"]["uid"]: pod for pod in pods if _is_leader(pod)}
        polled.reports = {pod_uid: kept for pod_uid, kept in polled.reports.items() if pod_uid in leaders}
        uids = {pod["metadata"]["uid"] for pod in pods}
        polled.polled_at = {pod_uid: at for pod_uid, at in polled.polled_at.items() if pod_uid in uids}
        due = {
            pod_uid: str(pod["status"]["podIP"])
            for pod_uid, pod in leaders.items()
            if (pod.get("status") or {}).get("podIP")
            and now - polled.polled_at.get(pod_uid, float("-inf")) > (READY_POLL_S if ready(pod) else UNREADY_POLL_S)
        }
        identity = self._certificates.operator_pair(uid) if due else None
        if identity is None:
            return
        polled.polled_at |= dict.fromkeys(due, now)
        for pod_uid, answer in (await get_statuses(due, uid, *identity)).items():
            group = int(names.label(leaders[pod_uid], names.GROUP) or 0)
            polled.reports[pod_uid] = (group, report(answer, pod_uid))

    async def _poll_routers(self, pods: tuple[Object, ...], polled: PollState) -> None:
        """Ask the ready routers that are due. Without a ready group there is nothing to reach: then only
        routers that need keys are asked, and all are asked again once a group is ready."""
        routers = {pod["metadata"]["uid"]: pod for pod in pods if _is_ready_router(pod)}
        has_group = any(_is_leader(pod) and ready(pod) for pod in pods)
        if has_group is not polled.has_ready_group:
            polled.has_ready_group = has_group
            polled.polled_at = {pod_uid: at for pod_uid, at in polled.polled_at.items() if pod_uid not in routers}
        if not has_group:
            routers = {pod_uid: pod for pod_uid, pod in routers.items() if has_keys(pod)}
            polled.routers = {pod_uid: RouterReport(keys=kept.keys) for pod_uid, kept in polled.routers.items()}
        polled.routers = {pod_uid: kept for pod_uid, kept in polled.routers.items() if pod_uid in routers}
        now = time.monotonic()
        due = {
            pod_uid: str(pod["status"]["podIP"])
            for pod_uid, pod in routers.items()
            if now - polled.polled_at.get(pod_uid, float("-inf")) > _router_poll_s(pod, polled.routers.get(pod_uid))
        }
        polled.polled_at |= dict.fromkeys(due, now)
        pages = await asyncio.gather(*map(get_router_page, due.values()))
        for pod_uid, page in zip(due, pages, strict=True):
            found = None if page is None else router_report(*page, polled.routers.get(pod_uid), time.time())
            if found is None:
                polled.routers.pop(pod_uid, None)
            else:
                polled.routers[pod_uid] = found if has_group else RouterReport(keys=found.keys)

    async def _update_warnings(
        self, namespace: str, sets: tuple[Object, ...], pods: tuple[Object, ...], polled: PollState
    ) -> None:
        suspects = [*(item for item in sets if _lacks_pods(item)), *(pod for pod in pods if _is_stuck(pod))]
        if not suspects:
            polled.warnings = ()
        elif time.monotonic() - polled.warnings_at > RECHECK_S:
            polled.warnings_at = time.monotonic()
            polled.warnings = tuple([w for item in suspects[:8] for w in await self._warnings(namespace, item)])

    async def _events(self, namespace: str, item: Object) -> list[Object]:
        """Events of an object. Selected by uid: names can be reused."""
        chosen = f"involvedObject.uid={item['metadata']['uid']}"
        try:
            events, _ = await self._kube.list(EVENT, namespace, fieldSelector=chosen, limit="50")
        except KubeError as error:
            log.warning("events of %s %s cannot be read: %s", item["kind"], item["metadata"]["name"], error)
            return []
        return events

    async def _warnings(self, namespace: str, item: Object) -> list[WarningEvent]:
        """The newest event of each reason that counts."""
        found: dict[str, WarningEvent] = {}
        for event in filter(_counts, await self._events(namespace, item)):
            warning = _warning(item, event)
            if warning.reason not in found or found[warning.reason].time_s <= warning.time_s:
                found[warning.reason] = warning
        return list(found.values())

    async def _is_autoscaled(self, namespace: str, pods: tuple[Object, ...], polled: PollState) -> bool:
        """True if an autoscaler's event names an unschedulable pod. Only some of these pods are asked about."""
        waiting = [pod for pod in pods if _is_unschedulable(pod)][:4]
        if not waiting:
            polled.autoscaled = False
        elif time.monotonic() - polled.autoscaled_at > AUTOSCALER_RECHECK_S:
            polled.autoscaled_at = time.monotonic()
            found = [event for pod in waiting for event in await self._events(namespace, pod)]
            polled.autoscaled = polled.autoscaled or any(map(_is_of_autoscaler, found))
        return polled.autoscaled

    async def _lost_nodes(self, pods: tuple[Object, ...]) -> dict[str, LostNode]:
        suspects = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") and _is_unhealthy(pod)}
        return {node: lost for node in sorted(suspects) if (lost := await self._lost_node(node)) is not None}

    async def _lost_node(self, name: str) -> LostNode | None:
        checked_at, lost = self._nodes.get(name, (float("-inf"), None))
        if self._nodes_forbidden or time.monotonic() - checked_at < RECHECK_S:
            return lost
        try:
            node = await self._kube.get(NODE, None, name)
        except KubeError as error:
            if error.status == 403:
                self._nodes_forbidden = True
                log.warning("no permission to read nodes: pods of a lost node stay until Kubernetes removes the node")
            return None
        lost = lost_node(node)
        self._nodes[name] = (time.monotonic(), lost)
        return lost


def lost_node(node: Object | None) -> LostNode | None:
    """How a node is lost; None if it is Ready, or has said nothing yet. node: None if there is no such Node."""
    if node is None:
        return LostNode("gone", 0.0)
    states = {"Unknown": "unreachable", "False": "not ready"}
    found = condition(node, "Ready")
    if found.get("status") not in states:
        return None
    return LostNode(states[found["status"]], unix(found.get("lastTransitionTime")) or 0.0)


def _is_of_autoscaler(event: Object) -> bool:
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    return any(name in component for name in AUTOSCALERS)


def report(answer: group_pb2.GroupStatus, pod_uid: str) -> GroupReport:
    """The status of a leader pod as a GroupReport."""
    failure, model = answer.last_failure, answer.model
    return GroupReport(
        revision=answer.revision,
        phase=group_pb2.Phase.Name(answer.phase).removeprefix("PHASE_"),
        progress_percent=answer.progress_percent,
        restarts=answer.restarts,
        last_failure=Failure(
            failure.pod, failure.rank, failure.reason, failure.exit_code, failure.message, failure.time_ms / 1000
        )
        if answer.HasField("last_failure")
        else None,
        model=ModelInfo(model.digest, model.architecture, model.size_bytes, model.context_length, model.note)
        if answer.HasField("model")
        else None,
        collective=_names(answer.collective),
        activations=_names(answer.activations),
        pod_uid=pod_uid,
    )


def _names(transports: Iterable["group_pb2.Transport.ValueType"]) -> str:
    """Names of the transports, in lower case; a number for one that only a newer worker knows."""
    known = group_pb2.Transport.DESCRIPTOR.values_by_number
    return ", ".join(known[number].name.lower() if number in known else str(number) for number in transports)


def _router_poll_s(pod: Object, last: RouterReport | None) -> float:
    if last is not None and last.unconnected_since is not None:
        return ROUTER_POLL_S
    if has_keys(pod):
        return SILENT_POLL_S if last is None else KEYS_POLL_S - KEYS_SLACK_S
    return READY_POLL_S


def _is_ready_router(pod: Object) -> bool:
    is_router = names.label(pod, names.COMPONENT) == "router"
    return is_router and ready(pod) and bool(pod["status"].get("podIP")) and not _is_deleting(pod)


def _is_deleting(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _counts(event: Object) -> bool:
    """Warnings, but not that the kubelet waits before it pulls an image again; and that an autoscaler adds a node."""
    if event.get("type") != "Warning":
        return event.get("reason") in SCALE_UP_EVENTS
    return not str(event.get("message", "")).startswith(("Error: ImagePullBackOff", "Error: ErrImagePull"))


def _named(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _is_our_name(service: str, item: Object) -> bool:
    """False for a user's object that only has the service's label."""
    ours = {service, names.ranks(service), names.leaders(service), names.router(service), names.workers(service)}
    revision = names.label(item, names.REVISION)
    if item["kind"] == CONTROLLER_REVISION.kind:
        ours = {names.worker_revision(service, revision), names.router_revision(service, revision)}
    return item["kind"] == STATEFUL_SET.kind or item["metadata"]["name"] in ours


def _is_leader(pod: Object) -> bool:
    return (
        names.label(pod, names.COMPONENT) == "worker"
        and names.label(pod, names.POD_INDEX) == "0"
        and not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") == "Running"
    )


def _is_unhealthy(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return bool(pod["metadata"].get("deletionTimestamp")) or (running and not ready(pod))


def _is_unschedulable(pod: Object) -> bool:
    found = condition(pod, "PodScheduled")
    return found.get("status") == "False" and found.get("reason") == "Unschedulable"


def _lacks_pods(stateful_set: Object) -> bool:
    return int((stateful_set.get("status") or {}).get("replicas") or 0) < int(stateful_set["spec"].get("replicas", 1))


def _is_stuck(pod: Object) -> bool:
    """True if the pod finds no node, or no container runs on its node after STUCK_AFTER_S: a volume, Secret or sandbox
    is missing."""
    status = pod.get("status") or {}
    if condition(pod, "PodScheduled").get("reason") == "Unschedulable" and not _is_deleting(pod):
        return True
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
