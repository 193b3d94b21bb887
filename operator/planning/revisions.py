"""What carries a pod template in a plan: the kept revisions, the routers' Deployment and the groups' StatefulSets.

A pod runs of a template that is kept: its ControllerRevision comes first, and `reconcile` writes no Deployment and no
StatefulSet if that fails.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.course import Course
from octavo.operator.groups.groups import GangBackoff, Group, timestamp
from octavo.operator.groups.history import Kept, last_good, next_number, to_prune
from octavo.operator.groups.options import Options
from octavo.operator.groups.revision import router_revision
from octavo.operator.groups.rollout import Goal, Step
from octavo.operator.groups.snapshot import Object
from octavo.operator.planning.actions import Apply, Delete, Event
from octavo.operator.planning.routers.keys import KeyState, annotation
from octavo.operator.specs import revisions, router, worker


@dataclass(frozen=True, slots=True)
class Revisions:
    """The kept revisions of a service, by revision, and the course between them."""

    service: InferenceService
    options: Options
    workers: Mapping[str, Kept]
    routers: Mapping[str, Kept]
    course: Course
    is_stopped: bool  # nothing new may be created
    new_account: str | None  # uid of the routers' ServiceAccount, if it is younger than a router
    keys: KeyState

    def router(self, now: float) -> Iterator[Apply]:
        """The revision of the routers, and their Deployment. now: Unix time in seconds."""
        service, revision = self.service, router_revision(self.service)
        template: Object | None = router.pod_template(service, revision, self.options)
        if revision in self.routers:
            template = self.routers[revision].template
        if template is None:  # it cannot be used: deleted now, rendered next
            return
        kept = revisions.of_routers(service, revision, template, next_number(self.routers, revision))
        yield Apply(kept, f"keeps the pod template of revision {revision} of the routers")
        desired = f"{service.spec.router.replicas} routers desired"
        template = router.with_account(template, self.new_account)
        since, overdue = annotation(service, self.keys), self.keys.is_overdue(now)
        yield Apply(router.deployment(service, revision, template, since, stop_old=overdue), desired)

    def groups(self, goal: Goal, allowed: Step, now: float) -> Iterator[Apply]:
        """The revisions of the workers that are in use or whose record has changed, then the groups."""
        target, rendered = self.course.target, None
        if target not in self.workers and not self.is_stopped:
            rendered = worker.pod_template(self.service, target, self.options)
        yield from self._kept(rendered)
        for group in allowed.keep:
            if group.template is None:
                continue
            backoff = allowed.gang_backoffs.get(group.index)
            state = "is scaled to zero for its back-off" if backoff and backoff.scaled_to_zero else "keeps its template"
            drain_since = allowed.drains.get(group.index)
            made = worker.statefulset(self.service, group, group.revision, now, backoff, drain_since)
            event = _backoff_event(self.service, group, backoff) or _drain_event(self.service, group, drain_since)
            yield Apply(made, f"group {group.index} {state}", event)
        for new in allowed.create:
            template = self.workers[new.revision].template if new.revision in self.workers else rendered
            if template is None:  # it cannot be used: deleted now, rendered next
                continue
            group = Group(new.index, None, (), None, template)
            made = worker.statefulset(self.service, group, new.revision, now)
            created = Event("Normal", "GroupCreated", f"created {names.group(self.service.name, new.index)}")
            yield Apply(made, _why(goal, group, new.revision), created)

    def _kept(self, rendered: Object | None) -> Iterator[Apply]:
        for revision, record in self.course.records.items():
            item = self.workers.get(revision)
            template = item.template if item else rendered
            in_use = revision in (self.course.target, self.course.desired)
            if template is None or (item and not in_use and record == item.record):
                continue
            number = self.course.number if revision == self.course.target or item is None else item.number
            made = revisions.of_workers(self.service, revision, template, number, record)
            yield Apply(made, f"keeps the pod template of revision {revision} of the workers")

    def deletes(self, live: Iterable[Group]) -> Iterator[Delete]:
        """Revisions beyond spec.rollout.historyLimit. live: groups that are not being deleted."""
        limit, course = self.service.spec.rollout.history_limit, self.course
        used = {course.target, course.desired, *(group.revision for group in live)}
        if not course.records[course.target].completed:
            good = last_good(item for item in self.workers.values() if item.revision != course.desired)
            used |= {good} if good else set()
        for kept, in_use in ((self.workers, used), (self.routers, {router_revision(self.service)})):
            for item in to_prune(kept, frozenset(in_use), limit):
                meta = item.live["metadata"]
                why = f"spec.rollout.historyLimit is {limit}" if item.template else "its pod template cannot be used"
                yield Delete("apps/v1", "ControllerRevision", meta["name"], meta["uid"], why)


def _why(goal: Goal, group: Group, revision: str) -> str:
    desired = "1 group" if goal.groups == 1 else f"{goal.groups} groups"
    pods = f"; it has {group.size} pods" if group.size > 1 else ""
    of = f"of revision {goal.revision} desired"
    if revision != goal.revision:
        of += f", and too few of them serve, so that {revision} grows"
    return f"{desired} {of}, {group.index} is the next free index{pods}"


def _drain_event(service: InferenceService, group: Group, since: float | None) -> Event | None:
    """The event of a drain that begins."""
    if since is None or group.live is None or names.annotation(group.live, names.DRAIN_SINCE):
        return None
    name, until = names.group(service.name, group.index), timestamp(since + service.spec.rollout.progress_deadline_s)
    message = f"{name}: {group.drained}: it is not evicted until another group serves in its place, or until {until}"
    return Event("Normal", "GroupDraining", message)


def _backoff_event(service: InferenceService, group: Group, backoff: GangBackoff | None) -> Event | None:
    """The event of a back-off that begins."""
    if backoff is None or (group.gang_backoff is not None and group.gang_backoff.attempts == backoff.attempts):
        return None
    name, again = names.group(service.name, group.index), timestamp(backoff.until_s)
    message = f"{name}: some of its {group.size} pods are unschedulable; scaled to zero until {again}"
    return Event("Warning", "GangBackoff", message)
