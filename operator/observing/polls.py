"""What the pods of one service say of themselves, and when they are asked.

Leaders report over gRPC: at each look while their group is not ready, else once a minute. While a group is ready, ready
routers are asked for their health page: at each look while they reach no group, else once a minute. Routers that need
API keys are asked every ten seconds, also without a group. Routers that are not ready are asked every ten seconds while
a group is, whether its release is too far from theirs.
"""

import asyncio
import time
from collections.abc import Iterable

from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.status_client import get_router_page, get_statuses, router_report
from octavo.operator.groups import names
from octavo.operator.groups.groups import deleting, ready
from octavo.operator.groups.snapshot import Failure, GroupReport, ModelInfo, Object, RouterReport
from octavo.operator.planning.routers.keys import POLL_S as KEYS_POLL_S
from octavo.operator.planning.routers.keys import has_keys
from octavo.proto.v1 import group_pb2

READY_POLL_S = 35.0
UNREADY_POLL_S = 1.5
ROUTER_POLL_S = 0.5  # of a router that reaches no group while one is ready: it connects within a second
SILENT_POLL_S = 4.0  # of a router that needs keys and did not answer
UNREADY_ROUTER_POLL_S = 9.0
KEYS_SLACK_S = 1.0  # a look that comes a little early asks too, so that none is skipped


class Polls:
    """The last answers of one service's pods. leaders: by pod uid, the group and its report. routers: by pod uid."""

    def __init__(self, certificates: CertificateKeeper) -> None:
        self.leaders: dict[str, tuple[int, GroupReport]] = {}
        self.routers: dict[str, RouterReport] = {}
        self._certificates = certificates
        self._polled_at: dict[str, float] = {}  # by pod uid, of leaders and routers
        self._had_ready_group = False  # at the last look

    async def update(self, service_uid: str, pods: tuple[Object, ...]) -> None:
        """Ask the pods that are due; drop the answers of deleted ones."""
        await self._poll_leaders(service_uid, pods)
        await self._poll_routers(pods)

    async def _poll_leaders(self, service_uid: str, pods: tuple[Object, ...]) -> None:
        now, leaders = time.monotonic(), {pod["metadata"]["uid"]: pod for pod in pods if _is_leader(pod)}
        self.leaders = {pod_uid: kept for pod_uid, kept in self.leaders.items() if pod_uid in leaders}
        uids = {pod["metadata"]["uid"] for pod in pods}
        self._polled_at = {key: at for key, at in self._polled_at.items() if key.partition("/")[0] in uids}
        due = {
            pod_uid: str(pod["status"]["podIP"])
            for pod_uid, pod in leaders.items()
            if (pod.get("status") or {}).get("podIP")
            and now - self._polled_at.get(pod_uid, float("-inf")) > (READY_POLL_S if ready(pod) else UNREADY_POLL_S)
        }
        identity = self._certificates.operator_pair(service_uid) if due else None
        if identity is None:
            return
        self._polled_at |= dict.fromkeys(due, now)
        for pod_uid, answer in (await get_statuses(due, service_uid, *identity)).items():
            group = int(names.label(leaders[pod_uid], names.GROUP) or 0)
            self.leaders[pod_uid] = (group, report(answer, pod_uid))

    async def _poll_routers(self, pods: tuple[Object, ...]) -> None:
        """Ask the routers that are due. Without a ready group there is nothing to reach: then only ready routers that
        need keys are asked, and all are asked again once a group is ready."""
        routers = {pod["metadata"]["uid"]: pod for pod in pods if _is_running_router(pod)}
        has_group = any(_is_leader(pod) and ready(pod) for pod in pods)
        if has_group is not self._had_ready_group:
            self._had_ready_group = has_group
            self._polled_at = {key: at for key, at in self._polled_at.items() if key.partition("/")[0] not in routers}
        if not has_group:
            routers = {pod_uid: pod for pod_uid, pod in routers.items() if ready(pod) and has_keys(pod)}
            self.routers = {pod_uid: RouterReport(keys=kept.keys) for pod_uid, kept in self.routers.items()}
        self.routers = {pod_uid: kept for pod_uid, kept in self.routers.items() if pod_uid in routers}
        now = time.monotonic()
        due = {
            pod_uid: str(pod["status"]["podIP"])
            for pod_uid, pod in routers.items()
            if now - self._polled_at.get(_poll_key(pod), float("-inf")) > _router_poll_s(pod, self.routers.get(pod_uid))
        }
        self._polled_at |= {_poll_key(routers[pod_uid]): now for pod_uid in due}
        pages = await asyncio.gather(*map(get_router_page, due.values()))
        for pod_uid, page in zip(due, pages, strict=True):
            found = None if page is None else router_report(*page, self.routers.get(pod_uid), time.time())
            if found is not None and not ready(routers[pod_uid]):
                found = RouterReport(skew=found.skew) if found.skew else None
            if found is None:
                self.routers.pop(pod_uid, None)
            else:
                self.routers[pod_uid] = found if has_group else RouterReport(keys=found.keys)


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
        release=answer.release,
    )


def _names(transports: Iterable["group_pb2.Transport.ValueType"]) -> str:
    """Names of the transports, in lower case; a number for one that only a newer worker knows."""
    known = group_pb2.Transport.DESCRIPTOR.values_by_number
    return ", ".join(known[number].name.lower() if number in known else str(number) for number in transports)


def _poll_key(pod: Object) -> str:
    """One that is ready is asked at once, whenever it was asked before."""
    uid = str(pod["metadata"]["uid"])
    return uid if ready(pod) else f"{uid}/unready"


def _router_poll_s(pod: Object, last: RouterReport | None) -> float:
    if not ready(pod):
        return UNREADY_ROUTER_POLL_S
    if last is not None and last.unconnected_since is not None:
        return ROUTER_POLL_S
    if has_keys(pod):
        return SILENT_POLL_S if last is None else KEYS_POLL_S - KEYS_SLACK_S
    return READY_POLL_S


def _is_running_router(pod: Object) -> bool:
    is_router = names.label(pod, names.COMPONENT) == "router"
    status = pod.get("status") or {}
    return is_router and status.get("phase") == "Running" and bool(status.get("podIP")) and not deleting(pod)


def _is_leader(pod: Object) -> bool:
    return (
        names.label(pod, names.COMPONENT) == "worker"
        and names.label(pod, names.POD_INDEX) == "0"
        and not deleting(pod)
        and (pod.get("status") or {}).get("phase") == "Running"
    )
