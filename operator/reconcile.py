"""One service once: observe, plan, apply.

Level-based: nothing is remembered of what was done, only what is there counts. What was there the last time is
remembered, so that no plan is made where nothing is new (`rest`).
"""

import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from octavo.operator.actions import Event, Plan
from octavo.operator.api.v1alpha1 import SpecError, parse
from octavo.operator.apply import NameConflict, Writer
from octavo.operator.caches import Caches
from octavo.operator.certificates import CertificateKeeper
from octavo.operator.events import Recorder
from octavo.operator.groups import ready
from octavo.operator.kube import SERVICE_CR, KubeError, Object
from octavo.operator.observe import Observer
from octavo.operator.options import Options
from octavo.operator.plan import plan, plan_invalid
from octavo.operator.rest import Rest
from octavo.operator.snapshot import Snapshot

TAKEN_AGAIN_S = 5.0  # how long a name is believed to be taken before it is looked at again

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """(kind, name) of objects outside the caches that an apply found to be somebody else's, and when."""

    found: dict[tuple[str, str], float] = field(default_factory=dict)

    def stale(self, now: float) -> list[tuple[str, str]]:
        return [name for name, at in self.found.items() if now - at >= TAKEN_AGAIN_S]


@dataclass(slots=True)
class Turn:
    """What became of one plan's steps."""

    key: str
    errors: list[KubeError] = field(default_factory=list)
    taken: list[NameConflict] = field(default_factory=list)

    async def attempt(self, what: str, step: Awaitable[object]) -> None:
        try:
            if await step:
                log.info("service %s: %s", self.key, what)
        except NameConflict as error:
            self.taken.append(error)
            log.warning("service %s: %s: %s", self.key, what, error)
        except KubeError as error:
            self.errors.append(error)
            log.warning("service %s: %s: %s", self.key, what, error)


class PlanFailed(Exception):
    """Some of a plan could not be carried out; the rest was. The first error is the cause."""


class Reconciler:
    """Carries out plans. `reconcile` is the only entry, one call at a time for each key."""

    def __init__(
        self, caches: Caches, observer: Observer, writer: Writer, certificates: CertificateKeeper, recorder: Recorder
    ) -> None:
        self._caches, self._observer, self._writer = caches, observer, writer
        self._certificates, self._recorder = certificates, recorder
        self._taken: dict[str, Taken] = {}
        self._uids: dict[str, str] = {}
        self._rests: dict[str, Rest] = {}

    async def reconcile(self, key: str, options: Options) -> float | None:
        """Seconds until the next look, None when only changes and the resync matter."""
        namespace, name = key.split("/", 1)
        resource = self._caches.get(SERVICE_CR.kind, namespace, name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        uid = resource["metadata"]["uid"]
        if self._uids.get(key, uid) != uid:
            self._forget(key)
        self._uids[key] = uid
        taken = self._taken.setdefault(uid, Taken())
        await self._look_again(namespace, uid, taken)
        before, now = set(taken.found), time.monotonic()
        snapshot = await self._observer.snapshot(namespace, name, uid, before)
        rest = self._rests.pop(uid, None)  # an error forgets it
        wished = None if rest is None else rest.plan(resource, snapshot, now)
        if rest is None or wished is None:
            wished = _plan(resource, snapshot, options)
            rest = Rest.after(wished, resource, snapshot, now)
        errors = await self._carry_out(wished, resource, taken)
        if errors:
            raise PlanFailed("; ".join(str(error) for error in errors[:3])) from errors[0]
        self._rests[uid] = rest
        if set(taken.found) != before:
            return 0.0  # the plan and the status must hear of it
        if taken.found:
            return TAKEN_AGAIN_S
        # What is not watched is looked at again: Secrets, and warnings while it is not ready.
        unwatched_s = max(1.0, self._certificates.check_in(uid)) if ready(resource) else rest.next_unready_s()
        return unwatched_s if wished.requeue_after is None else min(unwatched_s, wished.requeue_after)

    async def _look_again(self, namespace: str, uid: str, taken: Taken) -> None:
        """A name stays taken until the API server says otherwise, so that the status does not flap."""
        for kind, name in taken.stale(time.monotonic()):
            if await self._writer.is_taken(kind, namespace, name, uid):
                taken.found[(kind, name)] = time.monotonic()
            else:
                del taken.found[(kind, name)]

    async def _carry_out(self, wished: Plan, resource: Object, taken: Taken) -> list[KubeError]:
        """In the plan's order. One object's failure does not keep the others from their turn. Certificates come first
        where pods have none to start with; else what a user changed does not wait until they are read again."""
        namespace, uid = resource["metadata"]["namespace"], resource["metadata"]["uid"]
        turn = Turn(f"{namespace}/{resource['metadata']['name']}")
        are_new = not self._certificates.known(uid)
        if are_new:
            await self._ensure_certificates(turn, wished, resource)
        for step in wished.apply:
            what = f"apply {step.object['kind']} {step.object['metadata']['name']}: {step.reason}"
            await turn.attempt(what, self._writer.apply(step.object, uid))
        for gone in (*wished.delete, *wished.delete_pods):
            what = f"delete {gone.kind} {gone.name}: {gone.reason}"
            await turn.attempt(what, self._writer.delete(namespace, gone))
        if not are_new:
            await self._ensure_certificates(turn, wished, resource)
        if wished.status is not None:
            await turn.attempt("write the status", self._writer.status(resource, wished.status))
        failures = (Event("Warning", "ApplyFailed", str(error)) for error in turn.errors[:3])
        for event in (*wished.events, *failures):
            await self._recorder.record(resource, event)
        # Those in the caches are seen by the snapshot itself.
        hidden = [t for t in turn.taken if self._caches.get(t.kind, namespace, t.name) is None]
        taken.found |= {(t.kind, t.name): time.monotonic() for t in hidden}
        return turn.errors

    async def _ensure_certificates(self, turn: Turn, wished: Plan, resource: Object) -> None:
        namespace, uid = resource["metadata"]["namespace"], resource["metadata"]["uid"]
        if wished.certificates is not None and self._certificates.due(uid, ready(resource)):
            await turn.attempt("certificates", self._certificates.ensure(namespace, wished.certificates))

    def _forget(self, key: str) -> None:
        uid = self._uids.pop(key, None)
        if uid is None:
            return
        self._taken.pop(uid, None)
        self._rests.pop(uid, None)
        for part in (self._observer, self._writer, self._certificates, self._recorder):
            part.forget(uid)


def _plan(resource: Object, snapshot: Snapshot, options: Options) -> Plan:
    try:
        service = parse(resource)
    except SpecError as error:  # an old CRD let it pass
        return plan_invalid(resource, error, time.time())
    return plan(service, snapshot, options, time.time())
