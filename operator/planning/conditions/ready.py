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
        cause = facts.group_cause or facts.refused_for_serving or waiting(facts)
        return False, cause.reason, cause.message
    if facts.routers.ready == 0 or facts.routers.desired == 0 or facts.keys.all_refused:
        return router_ready.verdict(facts)
    if facts.routers.connected == 0 and facts.routers.skew:
        return False, "VersionSkew", facts.routers.skew
    if facts.routers.connected == 0:
        return False, "RouterDisconnected", "groups serve, but no router reaches one of them yet"
    if facts.serving < facts.goal.groups:
        why = f"; {facts.group_cause.message}" if facts.group_cause else ""
        return True, "PartiallyAvailable", f"{facts.serving} of {facts.goal.groups} groups serve{why}"
    return True, "Serving", f"{count(facts.serving, 'group')} {'serves' if facts.serving == 1 else 'serve'}"


def is_current(facts: Facts) -> bool:
    """True if a group of the desired revision serves, and a router of the present configuration reaches a group."""
    return facts.serving_current > 0 and facts.routers.updated_connected > 0
