"""Condition Degraded: there is a failure, or a group that has served does not and fewer serve than desired."""

from octavo.operator.planning.cause import Cause
from octavo.operator.planning.conditions import progressing
from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting


def verdict(facts: Facts) -> Verdict:
    cause = facts.blocked or facts.refused or _group_failure(facts) or facts.router_cause or facts.keys.cause
    if cause:
        return True, cause.reason, cause.message
    if failed := progressing.failure(facts):
        return True, *failed[1:]
    if facts.has_lost and facts.serving < facts.goal.groups:
        few = f"{facts.serving} of {count(facts.goal.groups, 'group')} serve"
        return True, "MinimumReplicasUnavailable", f"{few}; {waiting(facts).message}"
    return False, "Healthy", "no failure is known"


def _group_failure(facts: Facts) -> Cause | None:
    """Cause of a group, but not of one beside the desired ones that finds no node: then the rollout stops, see
    Progressing, and nothing is missing."""
    cause = facts.group_cause
    if cause and cause.reason == "Unschedulable" and facts.surge and facts.serving >= facts.goal.groups:
        return None
    return cause
