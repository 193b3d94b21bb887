"""Condition Progressing: groups or routers are being created or replaced."""

from octavo.operator.planning.conditions import router_ready
from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting

COMPLETE, OVERDUE, ROLLED_BACK = "Complete", "DeadlineExceeded", "RolledBack"
DRAINING, DRAIN_OVERDUE = "Draining", "DrainOverdue"


def verdict(facts: Facts) -> Verdict:
    goal, prevented = facts.goal, facts.blocked or facts.refused
    if prevented:
        return False, prevented.reason, prevented.message
    if failed := failure(facts):
        return failed
    if facts.draining and len(facts.live) == len(facts.current):
        return _drain(facts)
    if facts.surge_unschedulable:
        return (
            False,
            "SurgeUnschedulable",
            "no node has room for a new group beside the old ones; set spec.rollout to maxSurge: 0, maxUnavailable: 1 "
            "to take an old group down first",
        )
    stuck = next((facts.causes[group.index] for group in facts.current if group.index in facts.causes), None)
    if stuck:
        return False, stuck.reason, stuck.message
    old = len(facts.live) - len(facts.current)
    if old:
        done = sum(group.serving for group in facts.current)
        return (
            True,
            "RollingOut",
            f"{done} of {goal.groups} groups of revision {goal.revision} serve, {old} older remain{_wait(facts)}",
        )
    if len(facts.current) != goal.groups or facts.terminating:
        return (
            True,
            "Scaling",
            f"{count(len(facts.current), 'group')}, {facts.terminating} terminating, {goal.groups} desired",
        )
    if facts.serving < goal.groups:
        return True, "Starting", waiting(facts).message
    complete = f"{count(goal.groups, 'group')} of revision {goal.revision}, as desired"
    return _of_routers(facts) or (False, COMPLETE, complete)


def _drain(facts: Facts) -> Verdict:
    """Verdict on groups that are being replaced, while no rollout is under way."""
    group = facts.draining[0]
    cause = next((found for one in facts.current if not one.draining and (found := facts.cause_of(one.index))), None)
    why = f"; {cause.message}" if cause else ""
    shown = f"{facts.service}-{group.index}: {group.drained}"
    if facts.drain_overdue:
        late = "no other group has served in its place within spec.rollout.progressDeadline, so that it may be evicted"
        return False, DRAIN_OVERDUE, f"{shown}, and {late}{why}"
    return True, DRAINING, f"{shown}; it goes when another group serves in its place{why}"


def _of_routers(facts: Facts) -> Verdict | None:
    """Verdict on the routers; None: they are as desired."""
    if facts.keys.cause:
        return False, facts.keys.cause.reason, facts.keys.cause.message
    if facts.routers.complete:
        return None
    if facts.router_cause:
        return False, facts.router_cause.reason, facts.router_cause.message
    return True, "RollingOut", router_ready.shown(facts)


def _wait(facts: Facts) -> str:
    """What the first new group waits for, if the cluster says so."""
    wait = next((facts.waits[group.index] for group in facts.current if group.index in facts.waits), None)
    return f"; {wait.message}" if wait else ""


def failure(facts: Facts) -> Verdict | None:
    """Verdict on a rollout that failed: it was rolled back, or is overdue; None: neither."""
    course = facts.course
    if course.rollback:
        back = course.rollback
        why = f": {back.reason}: {back.message}" if back.reason else ""
        return (
            False,
            ROLLED_BACK,
            f"revision {course.desired} made no progress within spec.rollout.progressDeadline and was rolled back to "
            f"{back.revision}{why}; change the spec, or set spec.restartAt, to try again",
        )
    if not course.overdue:
        return None
    why = f": {facts.group_cause.reason}: {facts.group_cause.message}" if facts.group_cause else ""
    return (
        False,
        OVERDUE,
        f"no further group of revision {course.target} has served within spec.rollout.progressDeadline{why}",
    )
