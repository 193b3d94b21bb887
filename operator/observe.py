"""Reads one service's children into a Snapshot, from the caches.

In the steady state nothing is read from the API. Only what is not well is looked at closer: warnings about objects that
lack pods or hang, and the nodes of pods that are going or not ready. Groups that are not ready are asked for their
status at each look, ready ones once a minute.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.operator import names
from octavo.operator.apply import owned_by
from octavo.operator.caches import Caches
from octavo.operator.certificates import CertificateKeeper
from octavo.operator.groups import ready, unix
from octavo.operator.kube import CHILD_KINDS, EVENT, NODE, Kube, KubeError, Object
from octavo.operator.snapshot import Failure, GroupReport, ModelInfo, Snapshot, WarningEvent
from octavo.operator.status_client import ask_all
from octavo.proto.v1 import group_pb2

READY_ASK_S = 35.0
UNREADY_ASK_S = 1.5
LOOK_AGAIN_S = 5.0  # events and nodes
HANGS_S = 5.0  # a pod pending longer than this may have a warning worth reading

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """What is remembered of one service between looks."""

    reports: dict[str, tuple[int, GroupReport]] = field(default_factory=dict)  # pod uid: group, answer
    asked: dict[str, float] = field(default_factory=dict)  # pod uid
    warnings: tuple[WarningEvent, ...] = ()
    warned_at: float = float("-inf")


class Observer:
    def __init__(self, kube: Kube, caches: Caches, certificates: CertificateKeeper) -> None:
        self._kube, self._caches, self._certificates = kube, caches, certificates
        self._memories: dict[str, Memory] = {}
        self._nodes: dict[str, tuple[float, bool]] = {}  # name: (looked at, lost)
        self._nodes_forbidden = False

    def forget(self, service_uid: str) -> None:
        self._memories.pop(service_uid, None)

    async def snapshot(self, namespace: str, name: str, uid: str, taken: Iterable[tuple[str, str]]) -> Snapshot:
        """`taken`: (kind, name) that an apply found to be somebody else's."""
        key, memory = f"{namespace}/{name}", self._memories.setdefault(uid, Memory())
        children = [item for kind in CHILD_KINDS for item in self._caches.of_service(kind.kind, key)]
        foreign = {_named(item) for item in children if not owned_by(item, uid) and _is_our_name(name, item)}
        own = [item for item in children if owned_by(item, uid)]
        sets = tuple(item for item in own if item["kind"] == "StatefulSet")
        router = next(
            (i for i in own if i["kind"] == "Deployment" and i["metadata"]["name"] == names.router(name)), None
        )
        pods = tuple(self._caches.of_service("Pod", key))
        await self._ask(uid, pods, memory)
        await self._look_for_warnings(namespace, sets, pods, memory)
        return Snapshot(
            children=tuple(children),
            statefulsets=sets,
            pods=pods,
            router=router,
            reports={group: report for group, report in memory.reports.values()},
            warnings=memory.warnings,
            foreign=frozenset(foreign | set(taken)),
            lost_nodes=await self._lost_nodes(pods),
        )

    async def _ask(self, uid: str, pods: tuple[Object, ...], memory: Memory) -> None:
        """Ask the leader pods that are due; answers of pods that are gone are dropped."""
        now, leaders = time.monotonic(), {pod["metadata"]["uid"]: pod for pod in pods if _is_leader(pod)}
        memory.reports = {pod_uid: kept for pod_uid, kept in memory.reports.items() if pod_uid in leaders}
        memory.asked = {pod_uid: at for pod_uid, at in memory.asked.items() if pod_uid in leaders}
        due = {
            pod_uid: str(pod["status"]["podIP"])
            for pod_uid, pod in leaders.items()
            if (pod.get("status") or {}).get("podIP")
            and now - memory.asked.get(pod_uid, float("-inf")) > (READY_ASK_S if ready(pod) else UNREADY_ASK_S)
        }
        identity = self._certificates.operator_pair(uid) if due else None
        if identity is None:
            return
        memory.asked |= dict.fromkeys(due, now)
        for pod_uid, answer in (await ask_all(due, uid, *identity)).items():
            group = int(names.label(leaders[pod_uid], names.GROUP) or 0)
            memory.reports[pod_uid] = (group, report(answer, pod_uid))

    async def _look_for_warnings(
        self, namespace: str, sets: tuple[Object, ...], pods: tuple[Object, ...], memory: Memory
    ) -> None:
        suspects = [*(item for item in sets if _lacks_pods(item)), *(pod for pod in pods if _hangs(pod))]
        if not suspects:
            memory.warnings = ()
        elif time.monotonic() - memory.warned_at > LOOK_AGAIN_S:
            memory.warned_at = time.monotonic()
            memory.warnings = tuple([w for item in suspects[:8] for w in await self._warnings(namespace, item)])

    async def _warnings(self, namespace: str, item: Object) -> list[WarningEvent]:
        """The newest of each reason. Events are looked for by the object's uid: a namesake's are not ours."""
        chosen = f"involvedObject.uid={item['metadata']['uid']},type=Warning"
        try:
            events, _ = await self._kube.list(EVENT, namespace, fieldSelector=chosen, limit="50")
        except KubeError as error:
            log.warning("events of %s %s cannot be read: %s", item["kind"], item["metadata"]["name"], error)
            return []
        found: dict[str, WarningEvent] = {}
        for event in events:
            said = _warning(item, event)
            if said.reason not in found or found[said.reason].time_s <= said.time_s:
                found[said.reason] = said
        return list(found.values())

    async def _lost_nodes(self, pods: tuple[Object, ...]) -> frozenset[str]:
        suspects = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") and _is_unwell(pod)}
        return frozenset([node for node in sorted(suspects) if await self._is_lost(node)])

    async def _is_lost(self, name: str) -> bool:
        looked, lost = self._nodes.get(name, (float("-inf"), False))
        if self._nodes_forbidden or time.monotonic() - looked < LOOK_AGAIN_S:
            return lost
        try:
            node = await self._kube.get(NODE, None, name)
        except KubeError as error:
            if error.status == 403:
                self._nodes_forbidden = True
                log.warning("nodes may not be read: a pod on a lost node is replaced only when Kubernetes removes it")
            return False
        conditions = (node or {}).get("status", {}).get("conditions", [])
        lost = node is None or any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)
        self._nodes[name] = (time.monotonic(), lost)
        return lost


def report(answer: group_pb2.GroupStatus, pod_uid: str) -> GroupReport:
    """The answer of a pod 0 in the words of the snapshot."""
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
        model=ModelInfo(model.fingerprint, model.architecture, model.size_bytes, model.context_length, model.note)
        if answer.HasField("model")
        else None,
        collective=_names(answer.collective),
        activations=_names(answer.activations),
        pod_uid=pod_uid,
    )


def _names(transports: Iterable["group_pb2.Transport.ValueType"]) -> str:
    """A worker may be newer than this operator, and have others: those are shown by their numbers."""
    known = group_pb2.Transport.DESCRIPTOR.values_by_number
    return ", ".join(known[number].name.lower() if number in known else str(number) for number in transports)


def _named(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _is_our_name(service: str, item: Object) -> bool:
    """False for what a user made and only labelled like ours."""
    ours = {service, names.ranks(service), names.leaders(service), names.router(service), names.workers(service)}
    return item["kind"] == "StatefulSet" or item["metadata"]["name"] in ours


def _is_leader(pod: Object) -> bool:
    return (
        names.label(pod, names.COMPONENT) == "worker"
        and names.label(pod, names.POD_INDEX) == "0"
        and not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") == "Running"
    )


def _is_unwell(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return bool(pod["metadata"].get("deletionTimestamp")) or (running and not ready(pod))


def _lacks_pods(stateful_set: Object) -> bool:
    return int((stateful_set.get("status") or {}).get("replicas") or 0) < int(stateful_set["spec"].get("replicas", 1))


def _hangs(pod: Object) -> bool:
    """Placed on a node but not started for a while: a volume, a Secret or a sandbox is missing."""
    status = pod.get("status") or {}
    placed = any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions") or ())
    started = any("running" in (c.get("state") or {}) for c in status.get("containerStatuses") or ())
    age_s = time.time() - (unix(pod["metadata"].get("creationTimestamp")) or 0.0)
    return placed and not started and status.get("phase") == "Pending" and age_s > HANGS_S


def _warning(item: Object, event: Object) -> WarningEvent:
    seen = event.get("lastTimestamp") or (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    return WarningEvent(
        kind=item["kind"],
        name=item["metadata"]["name"],
        reason=str(event.get("reason", "")),
        message=str(event.get("message", "")),
        time_s=unix(seen or event["metadata"].get("creationTimestamp")) or 0.0,
    )
