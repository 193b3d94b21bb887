"""Condition Progressing: groups are being created or replaced."""

from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting


def verdict(facts: Facts) -> Verdict:
    goal = facts.goal
    if facts.blocked:
        return False, facts.blocked.reason, facts.blocked.message
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
            f"{done} of {goal.groups} groups of revision {goal.revision} serve, {old} older remain",
        )
    if len(facts.current) != goal.groups or facts.terminating:
        return (
            True,
            "Scaling",
            f"{count(len(facts.current), 'group')}, {facts.terminating} terminating, {goal.groups} desired",
        )
    if facts.serving < goal.groups:
        return True, "Starting", waiting(facts).message
    return False, "Complete", f"{count(goal.groups, 'group')} of revision {goal.revision}, as desired"
