"""Condition Ready: requests are answered."""

from octavo.operator.planning.conditions import router_ready
from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting


def verdict(facts: Facts) -> Verdict:
    if facts.blocked and (facts.serving == 0 or facts.blocked.reason == "NameConflict"):
        return False, facts.blocked.reason, facts.blocked.message
    if facts.goal.groups == 0:
        return facts.no_groups_desired
    if facts.serving == 0:
        cause = facts.group_cause or waiting(facts)
        return False, cause.reason, cause.message
    if facts.routers_ready == 0:
        return router_ready.verdict(facts)
    if facts.serving < facts.goal.groups:
        why = f"; {facts.group_cause.message}" if facts.group_cause else ""
        return True, "PartiallyAvailable", f"{facts.serving} of {facts.goal.groups} groups serve{why}"
    return True, "Serving", f"{count(facts.serving, 'group')} {'serves' if facts.serving == 1 else 'serve'}"
