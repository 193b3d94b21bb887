"""One reconcile of one service: observe, plan, apply.

Level-based: a plan depends on the observed state alone, not on earlier actions. The last observation is cached, so that
an unchanged one needs no new plan (`plan_cache.py`).
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from octavo.operator.api.v1alpha1 import InferenceService, SpecError, parse_stored
from octavo.operator.cluster.apply import NameConflict, Postponed, TemplateKept, Writer
from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.events import Recorder
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    SECRET,
    SERVICE_CR,
    STATEFUL_SET,
    KubeError,
    Object,
)
from octavo.operator.errors import OperatorError
from octavo.operator.groups.groups import ready
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Refusal, Snapshot
from octavo.operator.observing.observer import Observer
from octavo.operator.plan_cache import CachedPlan
from octavo.operator.planning.actions import Event, Plan
from octavo.operator.planning.plan import plan
from octavo.operator.planning.status_changes import status_changes
from octavo.operator.planning.unplanned import plan_invalid

TEMPLATED = (STATEFUL_SET.kind, DEPLOYMENT.kind)  # kinds with pods of a kept template
CONFLICT_RECHECK_S = 5.0  # until a name in conflict is checked again

log = logging.getLogger(__name__)


@dataclass(slots=True)
class NameConflicts:
    """Objects outside the caches with the name of a child and another owner. found: {(kind, name): monotonic time}."""

    found: dict[tuple[str, str], float] = field(default_factory=dict)

    def stale(self, now: float) -> list[tuple[str, str]]:
        return [name for name, at in self.found.items() if now - at >= CONFLICT_RECHECK_S]


@dataclass(slots=True)
class ApplyRun:
    """One execution of a plan: errors, refused and postponed writes and name conflicts of its steps, and events of
    finished ones."""

    key: str
    events: list[Event] = field(default_factory=list)
    errors: list[KubeError] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    conflicts: list[NameConflict] = field(default_factory=list)
    postponed_s: float = math.inf  # until the first postponed write
    wrote: bool = False

    @property
    def is_postponed(self) -> bool:
        return self.postponed_s < math.inf

    async def attempt(
        self, action: str, kind: str, reason: str, step: Awaitable[object], event: Event | None = None
    ) -> bool:
        """Run one step, a write of an object of this kind; False if it failed, or if it was postponed and leaves a pod
        template unkept. action and reason: for the log and the
        status; event: of the step once it is done."""
        what = f"{action}: {reason}" if reason else action
        try:
            if await step:
                self.wrote = True
                log.info("service %s: %s", self.key, what)
                self.events += [event] if event else []
        except NameConflict as error:
            self.conflicts.append(error)
            log.warning("service %s: %s: %s", self.key, what, error)
            return False
        except Postponed as error:
            self.postponed_s = min(self.postponed_s, error.after_s)
            log.debug("service %s: %s: %s", self.key, what, error)
            return error.keeps_template
        except KubeError as error:
            self.errors.append(error)
            if error.refused:
                self.refusals.append(Refusal(action, kind, error.message))
            # In a namespace that is being deleted every write is refused.
            level = logging.DEBUG if error.is_termination else logging.WARNING
            log.log(level, "service %s: %s: %s", self.key, what, error)
            return False
        return True


class PlanFailed(OperatorError):
    """Some steps of a plan failed, the others were executed. __cause__ is the first error."""

    @property
    def is_termination(self) -> bool:
        """True if the service's namespace is being deleted."""
        return isinstance(self.__cause__, KubeError) and self.__cause__.is_termination


class Reconciler:
    """Executes plans. `reconcile` is the only entry point, with one call at a time per key."""

    def __init__(
        self,
        caches: Caches,
        observer: Observer,
        writer: Writer,
        certificates: CertificateKeeper,
        recorder: Recorder,
        may_write: Callable[[str], Awaitable[bool]],
    ) -> None:
        """may_write: takes the Lease of a namespace; False if another operator holds it."""
        self._caches, self._observer, self._writer = caches, observer, writer
        self._certificates, self._recorder, self._may_write = certificates, recorder, may_write
        self._conflicts: dict[str, NameConflicts] = {}
        self._refusals: dict[str, tuple[Refusal, ...]] = {}
        self._uids: dict[str, str] = {}
        self._cached_plans: dict[str, CachedPlan] = {}

    async def reconcile(self, key: str, options: Options) -> float | None:
        """Reconcile the service `namespace/name`. Returns the seconds until the next reconcile; None: the resync.

        Raises PlanFailed, NotLeading.
        """
        namespace, name = key.split("/", 1)
        resource = self._caches.get(SERVICE_CR.kind, namespace, name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        if not await self._may_write(namespace):
            return None  # added again once the namespace's Lease is held
        uid = resource["metadata"]["uid"]
        if self._uids.get(key, uid) != uid:
            self._forget(key)
        self._uids[key] = uid
        conflicts = self._conflicts.setdefault(uid, NameConflicts())
        await self._recheck_conflicts(namespace, uid, conflicts)
        before, now = set(conflicts.found), time.monotonic()
        cached = self._cached_plans.pop(uid, None)  # stored again below unless there is an error
        # To parse takes longer than all else where nothing is new.
        service = None if cached is not None and cached.resource is resource else _parsed(resource)
        surges = _surges(service) if cached is None or service is not None else cached.surges
        snapshot = await self._observer.snapshot(namespace, name, uid, before, surges)
        fields = self._writer.turns.conflicts(uid, now)
        snapshot = replace(snapshot, refusals=self._refusals.get(uid, ()), conflicts=fields)
        planned = None if cached is None else cached.plan(resource, snapshot, now)
        if cached is None or planned is None:
            planned = _plan(service or _parsed(resource), resource, snapshot, options)
            cached = CachedPlan.after(planned, resource, snapshot, now, surges)
        try:
            run = await self._carry_out(planned, resource, snapshot, options)
        except TemplateKept as error:
            log.info("service %s: %s", key, error)
            return 0.0
        if run.errors:
            raise PlanFailed("; ".join(str(error) for error in run.errors[:3])) from run.errors[0]
        if set(conflicts.found) != before:
            return 0.0  # plan again with the conflicts, for the status
        return self._next_look_s(uid, resource, planned, cached, run)

    def _next_look_s(self, uid: str, resource: Object, planned: Plan, cached: CachedPlan, run: ApplyRun) -> float:
        """Seconds until the next reconcile without a change. Keeps the plan if that need not plan again."""
        turns, now = self._writer.turns, time.monotonic()
        pending_s, settles_s = turns.pending_s(uid, now), turns.settles_s(uid, now)
        # What was written may be gone before it is seen: the snapshot is then the same again.
        if pending_s is None and not run.wrote and not run.is_postponed:
            self._cached_plans[uid] = cached
        if self._conflicts[uid].found:
            unwatched_s = CONFLICT_RECHECK_S
        else:  # Secrets, and warning events of a service that is not ready, are not watched
            unwatched_s = max(1.0, self._certificates.check_in(uid)) if ready(resource) else cached.next_unready_s()
        waits = (unwatched_s, planned.requeue_after, pending_s, settles_s, run.postponed_s)
        return min(wait_s for wait_s in waits if wait_s is not None)

    async def _recheck_conflicts(self, namespace: str, uid: str, conflicts: NameConflicts) -> None:
        """A conflict stays until the API server shows that it is resolved, so that the status does not flap."""
        for kind, name in conflicts.stale(time.monotonic()):
            if await self._writer.is_foreign(kind, namespace, name, uid):
                conflicts.found[(kind, name)] = time.monotonic()
            else:
                del conflicts.found[(kind, name)]

    async def _carry_out(self, planned: Plan, resource: Object, snapshot: Snapshot, options: Options) -> ApplyRun:
        """Execute the steps in the plan's order; an error does not stop the following steps.

        Certificates come first for a new service, whose pods cannot start without them, and last otherwise, so that a
        user's change does not wait for their check. The status is that of the plan, or of a new one if other writes
        were refused than at the last attempt, or others are changed back.
        """
        namespace, uid = resource["metadata"]["namespace"], resource["metadata"]["uid"]
        run = ApplyRun(f"{namespace}/{resource['metadata']['name']}")
        are_new = not self._certificates.known(uid)
        if are_new:
            await self._ensure_certificates(run, planned, resource)
        templates_kept = True
        for step in planned.apply:
            kind, name = step.object["kind"], step.object["metadata"]["name"]
            if kind in TEMPLATED and not templates_kept:
                continue  # no pod runs of a template that is not kept
            write = self._writer.apply(step.object, uid)
            done = await run.attempt(f"apply {kind} {name}", kind, step.reason, write, step.event)
            templates_kept &= done or kind != CONTROLLER_REVISION.kind
        for gone in (*planned.delete, *planned.delete_pods):
            action = f"delete {gone.kind} {gone.name}"
            await run.attempt(action, gone.kind, gone.reason, self._writer.delete(namespace, gone, uid), gone.event)
        if not are_new:
            await self._ensure_certificates(run, planned, resource)
        refusals = self._refusals[uid] = tuple(run.refusals)
        fields = self._writer.turns.conflicts(uid, time.monotonic())
        if (refusals, fields) != (snapshot.refusals, snapshot.conflicts):
            planned = _plan(
                _parsed(resource), resource, replace(snapshot, refusals=refusals, conflicts=fields), options
            )
        # A refused write is in the status, whose transitions have events.
        failed = [error for error in run.errors if not (error.refused or error.is_termination)]
        failures = [Event("Warning", "ApplyFailed", str(error)) for error in failed]
        if planned.status is not None:
            changes = status_changes(resource.get("status") or {}, planned.status)
            write = self._writer.status(resource, planned.status)
            await run.attempt("write the status", SERVICE_CR.kind, changes, write)
        for event in (*run.events, *planned.events, *failures[:3]):
            await self._recorder.record(resource, event)
        # The snapshot finds conflicts with cached objects itself.
        conflicts = self._conflicts[uid]
        hidden = [t for t in run.conflicts if self._caches.get(t.kind, namespace, t.name) is None]
        conflicts.found |= {(t.kind, t.name): time.monotonic() for t in hidden}
        return run

    async def _ensure_certificates(self, run: ApplyRun, planned: Plan, resource: Object) -> None:
        namespace, uid = resource["metadata"]["namespace"], resource["metadata"]["uid"]
        if planned.certificates is not None and self._certificates.due(uid, ready(resource)):
            step = self._certificates.ensure(namespace, planned.certificates)
            await run.attempt("write the certificates", SECRET.kind, "", step)

    def _forget(self, key: str) -> None:
        uid = self._uids.pop(key, None)
        if uid is None:
            return
        self._conflicts.pop(uid, None)
        self._refusals.pop(uid, None)
        self._cached_plans.pop(uid, None)
        for part in (self._observer, self._writer, self._certificates, self._recorder):
            part.forget(uid)


def _parsed(resource: Object) -> InferenceService | SpecError:
    """The service, or why it cannot be read: the CRD of another release has accepted it."""
    try:
        return parse_stored(resource)
    except SpecError as error:
        return error


def _surges(service: InferenceService | SpecError | None) -> bool:
    return isinstance(service, InferenceService) and service.spec.disruption.surges


def _plan(service: InferenceService | SpecError, resource: Object, snapshot: Snapshot, options: Options) -> Plan:
    if isinstance(service, SpecError):
        return plan_invalid(resource, service, snapshot, time.time())
    return plan(service, snapshot, options, time.time())
