"""Condition ModelLoaded: at least one group has loaded the model."""

from octavo.operator.planning.conditions.facts import Facts, Verdict, count
from octavo.operator.planning.conditions.group_state import waiting


def verdict(facts: Facts) -> Verdict:
    if facts.serving:
        return True, "Loaded", f"{count(facts.serving, 'group')} {'holds' if facts.serving == 1 else 'hold'} the model"
    if facts.blocked:
        return False, facts.blocked.reason, facts.blocked.message
    if facts.goal.groups == 0:
        return facts.no_groups_desired
    cause = facts.group_cause or facts.refused_for_serving or waiting(facts)
    return False, cause.reason, cause.message


def is_current(facts: Facts) -> bool:
    """True if a group of the desired revision has loaded the model."""
    return facts.serving_current > 0
