"""Condition Degraded: there is a failure, or fewer groups serve than desired once a group has served."""

from octavo.operator.planning.conditions import progressing
from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting


def verdict(facts: Facts) -> Verdict:
    cause = facts.blocked or facts.group_cause or facts.router_cause
    if cause:
        return True, cause.reason, cause.message
    if facts.surge_unschedulable:
        return True, "SurgeUnschedulable", progressing.verdict(facts)[2]
    if (facts.has_served or facts.serving) and facts.serving < facts.goal.groups:
        few = f"{facts.serving} of {count(facts.goal.groups, 'group')} serve"
        return True, "MinimumReplicasUnavailable", f"{few}; {waiting(facts).message}"
    return False, "Healthy", "no failure is known"
