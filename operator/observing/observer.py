"""Reads one service's children into a Snapshot, from the caches.

In the steady state nothing is read from the API. Only for unhealthy objects there are further reads: their events,
nodes, and StatefulSets that only their pods name. Pods are asked for their status.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from octavo.operator.cluster.apply import owned_by
from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import CHILD_KINDS, CONTROLLER_REVISION, STATEFUL_SET, Kube, Object
from octavo.operator.groups import names
from octavo.operator.groups.groups import deleting
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.observing.drains import Drains
from octavo.operator.observing.events import Events
from octavo.operator.observing.nodes import Nodes
from octavo.operator.observing.polls import Polls
from octavo.operator.planning.diagnosis import is_worker


@dataclass(slots=True)
class _Observed:
    """What is kept of one service from look to look."""

    polls: Polls
    events: Events = field(default_factory=Events)


class Observer:
    def __init__(self, kube: Kube, caches: Caches, certificates: CertificateKeeper, drains: Drains) -> None:
        self._kube, self._caches, self._certificates = kube, caches, certificates
        self._observed: dict[str, _Observed] = {}  # by the service's uid
        self._nodes, self._drains = Nodes(kube), drains

    def forget(self, service_uid: str) -> None:
        self._observed.pop(service_uid, None)
        self._drains.forget(service_uid)

    async def snapshot(
        self, namespace: str, name: str, uid: str, conflicts: Iterable[tuple[str, str]], surges: bool = False
    ) -> Snapshot:
        """Observe a service. conflicts: (kind, name) of objects with other owners, as found by an apply. surges: its
        groups are replaced before their nodes are drained."""
        key, seen = f"{namespace}/{name}", self._observed.get(uid)
        if seen is None:
            seen = self._observed[uid] = _Observed(Polls(self._certificates))
        children = [item for kind in CHILD_KINDS for item in self._caches.of_service(kind.kind, key)]
        foreign = {_named(item) for item in children if not owned_by(item, uid) and _is_our_name(name, item)}
        own = [item for item in children if owned_by(item, uid)]
        router = next(
            (i for i in own if i["kind"] == "Deployment" and i["metadata"]["name"] == names.router(name)), None
        )
        pods = tuple(self._caches.of_service("Pod", key))
        sets = tuple(item for item in own if item["kind"] == "StatefulSet")
        sets += await self._unlabelled(namespace, uid, pods, {item["metadata"]["uid"] for item in sets})
        await seen.polls.update(uid, pods)
        await seen.events.update(self._kube, namespace, sets, pods)
        return Snapshot(
            children=tuple(children),
            statefulsets=sets,
            revisions=tuple(item for item in own if item["kind"] == "ControllerRevision"),
            pods=pods,
            router=router,
            reports={group: report for group, report in seen.polls.leaders.values()},
            warnings=seen.events.warnings,
            foreign=frozenset(foreign | set(conflicts)),
            lost_nodes=await self._nodes.lost(pods),
            draining_nodes=await self._draining(uid, key, pods, surges),
            routers=dict(seen.polls.routers),
            unreadable=self._caches.unreadable(namespace),
            autoscaled=seen.events.autoscaled,
        )

    async def _draining(self, uid: str, key: str, pods: tuple[Object, ...], surges: bool) -> Mapping[str, str] | None:
        if not surges:
            self._drains.forget(uid)
            return {}
        return await self._drains.of(uid, key, filter(is_worker, pods))

    async def _unlabelled(
        self, namespace: str, uid: str, pods: tuple[Object, ...], known: set[str]
    ) -> tuple[Object, ...]:
        """StatefulSets of the service that lost the label by which the cache finds them: their pods name them."""
        if any(kind == STATEFUL_SET.kind for kind, _ in self._caches.unreadable(namespace)):
            return ()  # a get would be refused too, and nothing is planned then
        owners = {
            owner["uid"]: str(owner["name"])
            for pod in pods
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == STATEFUL_SET.kind and not deleting(pod)
        }
        found = [await self._kube.get(STATEFUL_SET, namespace, name) for it, name in owners.items() if it not in known]
        return tuple(
            item for item in found if item is not None and item["metadata"]["uid"] in owners and owned_by(item, uid)
        )


def _named(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _is_our_name(service: str, item: Object) -> bool:
    """False for a user's object that only has the service's label."""
    ours = {service, names.ranks(service), names.leaders(service), names.router(service), names.workers(service)}
    revision = names.label(item, names.REVISION)
    if item["kind"] == CONTROLLER_REVISION.kind:
        ours = {names.worker_revision(service, revision), names.router_revision(service, revision)}
    return item["kind"] == STATEFUL_SET.kind or item["metadata"]["name"] in ours
