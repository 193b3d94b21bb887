"""Writes to the API server: only while the Leases are held, only changes, only to objects that the service owns, and of
each object only so many.

WriteError
├── NotLeading    this replica does not hold the Lease, or not the namespace's
├── Postponed     others change the object back, or it was written too often
├── TemplateKept  a revision keeps another pod template, which the plan did not know
└── NameConflict  an object of this name exists and has another owner; it is left unchanged
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import (
    BY_KIND,
    CONTROLLER_REVISION,
    EVENT,
    FIELD_MANAGER,
    SECRET,
    SERVICE_CR,
    Kind,
    Kube,
    KubeError,
    Object,
)
from octavo.operator.cluster.lease import WRITE_TIMEOUT_S
from octavo.operator.cluster.trim import keeps_own_template
from octavo.operator.drift.managers import manager_of, shown
from octavo.operator.drift.turns import Turn, Turns
from octavo.operator.errors import OperatorError
from octavo.operator.groups.snapshot import FieldConflict
from octavo.operator.metrics import Metrics
from octavo.operator.planning import apply_diff as semantic
from octavo.operator.planning.actions import Delete

log = logging.getLogger(__name__)


class WriteError(OperatorError):
    """A write was not sent."""


class NotLeading(WriteError):
    """The Lease is not held, or was not renewed in time."""


class Postponed(WriteError):
    """The write is not sent before `after_s` seconds have passed. keeps_template: it is of a ControllerRevision that
    has the desired pod template, so that pods may be made of it."""

    def __init__(self, kind: str, name: str, after_s: float, keeps_template: bool = False) -> None:
        super().__init__(
            f"{kind} {name} is written again in {after_s:.1f} s: it was changed back, or written too often"
        )
        self.after_s, self.keeps_template = after_s, keeps_template


class NameConflict(WriteError):
    """The name of a child object is in use by an object with another owner."""

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(f"{kind} {namespace}/{name} exists and does not belong to this service: rename or delete it")
        self.kind, self.name = kind, name


class TemplateKept(WriteError):
    """The ControllerRevision exists with another pod template: it was not in the cache when the plan was made."""

    def __init__(self, name: str) -> None:
        super().__init__(f"ControllerRevision {name} keeps another pod template; the service is planned again with it")


class Writer:
    """All writes except the renewal of Leases. held: whether this replica may write in a namespace."""

    def __init__(self, kube: Kube, caches: Caches, held: Callable[[str], bool], meter: Metrics) -> None:
        self._kube, self._caches, self._held, self._meter = kube, caches, held, meter
        self.turns = Turns()
        # {uid: (desired status, status in the server's answer)}: they differ where an old CRD dropped a field.
        self._status: dict[str, tuple[Any, Any]] = {}

    async def apply(self, desired: Mapping[str, Any], owner_uid: str) -> bool:
        """Apply an object; False if the live one already matches. Raises WriteError, KubeError."""
        kind, meta = BY_KIND[desired["kind"]], desired["metadata"]
        live = self._caches.get(kind.kind, meta["namespace"], meta["name"])
        cached = live is not None
        if live is None:
            live = await self._kube.get(kind, meta["namespace"], meta["name"])
        if live is not None:
            if not owned_by(live, owner_uid):
                raise NameConflict(kind.kind, meta["namespace"], meta["name"])
            if kind is CONTROLLER_REVISION and not cached and live.get("data") != desired["data"]:
                await self._show(desired, live)
                raise TemplateKept(meta["name"])
            if live["metadata"].get("deletionTimestamp") or semantic.unchanged(live, desired, FIELD_MANAGER):
                self.turns.held(owner_uid, (kind.kind, meta["name"]), time.monotonic())
                return False
            # With the uid, the server refuses the write if the object was replaced by another of the same name.
            meta = {**meta, "uid": live["metadata"]["uid"]}
        turn = self.turns.of_apply(owner_uid, desired, time.monotonic())
        await self._look_for_conflict(kind, desired, live, turn)
        self._begin_turn(turn, live is not None and kind is CONTROLLER_REVISION and _keeps(live, desired, cached))
        self._begin("apply", kind, meta["namespace"])
        answer = await self._kube.apply(kind, {**desired, "metadata": meta}, WRITE_TIMEOUT_S)
        self.turns.done(turn, time.monotonic(), semantic.holds(answer, desired))
        self._caches.store_written(answer)
        return True

    def _begin_turn(self, turn: Turn, keeps_template: bool = False) -> None:
        """Raises Postponed before the turn."""
        now = time.monotonic()
        if turn.at > now:
            self._meter.postponed.labels(turn.key[0]).inc()
            raise Postponed(*turn.key, turn.at - now, keeps_template)
        self.turns.begin(turn, now)

    async def _look_for_conflict(self, kind: Kind, desired: Mapping[str, Any], live: Object | None, turn: Turn) -> None:
        """Find out what changes the object back: the first field and its manager. After the next apply the field has
        our manager again. The caches keep no managers but ours."""
        drift, (_, name) = self.turns.drift(turn.service_uid), turn.key
        if not drift.wants_cause(turn.key):
            return
        whole = live and await self._kube.get(kind, turn.namespace, name)
        path = next(semantic.different(whole, desired), None) if whole else None
        if whole is None:
            drift.found(turn.key, FieldConflict(kind.kind, name, "", ""))
        elif path is not None:
            manager = manager_of(whole, path, FIELD_MANAGER)
            is_rewritten = drift.is_rewritten(turn.key)
            drift.found(turn.key, FieldConflict(kind.kind, name, shown(path), manager, is_rewritten))

    async def _show(self, desired: Mapping[str, Any], live: Object) -> None:
        """Give a ControllerRevision its labels back, by which the cache finds it. Its data cannot be changed; of one
        that another client has created it stays that client's, so that it is not believed and the object is deleted."""
        self._begin("apply", CONTROLLER_REVISION, desired["metadata"]["namespace"])
        kept = {key: value for key, value in desired.items() if key not in ("data", "revision")}
        if keeps_own_template(live):
            kept |= {"data": live["data"], "revision": live["revision"]}
        self._caches.store_written(await self._kube.apply(CONTROLLER_REVISION, kept, WRITE_TIMEOUT_S))

    def holds(self, secret: Object, owner_uid: str) -> None:
        """A Secret was found as desired, without `apply`: nothing is pending for it."""
        self.turns.held(owner_uid, (SECRET.kind, secret["metadata"]["name"]), time.monotonic())

    async def is_foreign(self, kind: str, namespace: str, name: str, owner_uid: str) -> bool:
        """True if the API server has an object of this name with another owner."""
        live = await self._kube.get(BY_KIND[kind], namespace, name)
        return live is not None and not owned_by(live, owner_uid)

    async def delete(self, namespace: str, gone: Delete, owner_uid: str) -> bool:
        """Delete the object if it still has this uid; False if it is gone already. Raises Postponed, NotLeading,
        KubeError."""
        kind = BY_KIND[gone.kind]
        body: Object = {"preconditions": {"uid": gone.uid}, "propagationPolicy": "Background"}
        if gone.grace_s is not None:
            body["gracePeriodSeconds"] = gone.grace_s
        wait_s = self.turns.of_delete(owner_uid, namespace, (kind.kind, gone.name), time.monotonic())
        if wait_s > 0:
            raise Postponed(kind.kind, gone.name, wait_s)
        self._begin("delete", kind, namespace)
        try:
            path = kind.path(namespace, gone.name)
            answer = await self._kube.call("DELETE", path, body=body, timeout_s=WRITE_TIMEOUT_S)
        except KubeError as error:
            if error.status not in (404, 409):
                raise
            return False
        if answer.get("kind") == kind.kind:  # deleted later: until then it has a deletionTimestamp
            self._caches.store_written(answer)
        return True

    async def status(self, resource: Object, status: Mapping[str, Any]) -> bool:
        """Write the whole status of a service; False if it is unchanged. Raises Postponed, NotLeading,
        KubeError."""
        meta = resource["metadata"]
        desired, kept = without_nones(dict(status)), resource.get("status") or {}
        if desired == kept or self._status.get(meta["uid"]) == (desired, kept):
            return False
        body = {
            "apiVersion": SERVICE_CR.api_version,
            "kind": SERVICE_CR.kind,
            "metadata": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
            "status": desired,
        }
        turn = self.turns.of_status(meta["uid"], meta["namespace"], (SERVICE_CR.kind, meta["name"]), time.monotonic())
        self._begin_turn(turn)
        self._begin("status", SERVICE_CR, meta["namespace"])
        answer = await self._kube.apply(SERVICE_CR, body, WRITE_TIMEOUT_S, subresource="status")
        self._caches.store_written(answer)
        self._status[meta["uid"]] = (desired, answer.get("status") or {})
        return True

    async def event(self, event: Object) -> None:
        """Create an event. Raises NotLeading, KubeError."""
        self._begin("create", EVENT, event["metadata"]["namespace"])
        path = EVENT.path(event["metadata"]["namespace"])
        await self._kube.call("POST", path, body=event, timeout_s=WRITE_TIMEOUT_S)

    async def event_again(self, event: Object) -> bool:
        """Raise an event's count and time; False if it does not exist any more. Raises NotLeading, KubeError."""
        self._begin("patch", EVENT, event["metadata"]["namespace"])
        path = EVENT.path(event["metadata"]["namespace"], event["metadata"]["name"])
        raised = {key: event[key] for key in ("count", "lastTimestamp")}
        try:
            await self._kube.call("PATCH", path, None, raised, "application/merge-patch+json", WRITE_TIMEOUT_S)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True

    def forget(self, service_uid: str) -> None:
        self._status.pop(service_uid, None)
        self.turns.forget(service_uid)

    def _begin(self, verb: str, kind: Kind, namespace: str) -> None:
        if not self._held(namespace):
            raise NotLeading(f"the lease of the namespace {namespace} is not held")
        self._meter.writes.labels(verb, kind.kind).inc()


def owned_by(item: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in item["metadata"].get("ownerReferences") or ())


def _keeps(live: Object, desired: Mapping[str, Any], cached: bool) -> bool:
    """True if a ControllerRevision has the desired pod template, as we have written it. The cache has its data as text,
    and null for that of another client."""
    if cached:
        return bool(json.loads(live.get("data") or "null") == desired["data"])
    return keeps_own_template(live) and live.get("data") == desired["data"]


def without_nones(value: Any) -> Any:  # Any: JSON
    if isinstance(value, Mapping):
        return {key: without_nones(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nones(item) for item in value]
    return value
