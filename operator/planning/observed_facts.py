"""Facts of one observation of a service, for its conditions: what fails, what only waits, and what is counted."""

from collections.abc import Iterable, Mapping

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.course import Course
from octavo.operator.groups.drains import is_overdue
from octavo.operator.groups.groups import Group
from octavo.operator.groups.revision import router_revision
from octavo.operator.groups.rollout import Goal, Step, surge_waits_since
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning import hindrances
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.conditions.evaluate import had_more_serving
from octavo.operator.planning.conditions.facts import Facts
from octavo.operator.planning.diagnosis import group_cause, is_worker, router_cause
from octavo.operator.planning.routers.counts import Routers, routers
from octavo.operator.planning.routers.keys import KeyState


def observed_facts(
    service: InferenceService,
    snapshot: Snapshot,
    goal: Goal,
    course: Course,
    observed: tuple[Group, ...],
    allowed: Step,
    blocked: Cause | None,
    causes: Mapping[int, Cause],
    keys: KeyState,
    now: float,
) -> Facts:
    """Facts of one observation. blocked: cause that prevents any change. causes: of all groups, by index. now: Unix
    time in seconds."""
    found = {group.index: causes[group.index] for group in allowed.keep if group.index in causes}
    router = _router_cause(snapshot)
    counted = _routers(service, snapshot, now)
    failures = {index: cause for index, cause in found.items() if now >= cause.failure_at}
    surge = surge_waits_since(goal, observed) is not None
    return Facts(
        service=service.name,
        goal=goal,
        course=course,
        paused=service.spec.paused,
        live=allowed.keep,
        terminating=len(observed) - len(allowed.keep),
        unknown_fields=service.unknown_fields,
        blocked=blocked,
        causes=failures,
        waits={index: cause for index, cause in found.items() if index not in failures},
        routers=counted,
        router_cause=next((c for c in _in_order(router, counted) if c and now >= c.failure_at), None),
        router_wait=router if router and now < router.failure_at else None,
        refused=hindrances.refused(snapshot.refusals),
        refused_for_serving=hindrances.refused(snapshot.refusals, for_serving=True),
        unreadable=hindrances.unreadable(snapshot),
        field_conflict=hindrances.field_conflict(snapshot),
        name_conflict=hindrances.name_conflict(snapshot, for_serving=False),
        surge_unschedulable=surge and any(_finds_no_node(goal, group, failures) for group in allowed.keep),
        keys=keys,
        drain_overdue=is_overdue(allowed.drains, service.spec.rollout.progress_deadline_s, now),
        has_lost=had_more_serving(service.status, course.desired, sum(group.serving for group in allowed.keep)),
    )


def group_causes(service: InferenceService, snapshot: Snapshot, live: Iterable[Group]) -> dict[int, Cause]:
    """Why each group that does not serve does not, by index; also what it only waits for."""
    causes = (
        (
            group.index,
            group_cause(group, names.group(service.name, group.index), snapshot.warnings, snapshot.lost_nodes),
        )
        for group in live
    )
    return {index: cause for index, cause in causes if cause}


def _finds_no_node(goal: Goal, group: Group, failures: Mapping[int, Cause]) -> bool:
    failure = failures.get(group.index)
    return group.revision == goal.revision and failure is not None and failure.reason == "Unschedulable"


def _router_cause(snapshot: Snapshot) -> Cause | None:
    pods = [pod for pod in snapshot.pods if not is_worker(pod)]
    return router_cause(snapshot.router, pods, snapshot.warnings, snapshot.lost_nodes)


def _in_order(router: Cause | None, counted: Routers) -> tuple[Cause | None, Cause | None]:
    """The causes of routers' failures: that they reach no group of another release before what follows from it."""
    return (counted.cause, router) if counted.skew else (router, counted.cause)


def _routers(service: InferenceService, snapshot: Snapshot, now: float) -> Routers:
    pods = [pod for pod in snapshot.pods if not is_worker(pod)]
    was_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in service.status.get("conditions") or ())
    desired = service.spec.router.replicas
    return routers(desired, router_revision(service), pods, snapshot.routers, was_ready, now)
