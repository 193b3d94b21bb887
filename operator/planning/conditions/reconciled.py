"""Condition Reconciled: the API server holds all objects of the service as desired."""

from octavo.operator.planning.conditions.facts import Facts, Verdict


def verdict(facts: Facts) -> Verdict:
    cause = facts.blocked or facts.refused or facts.unreadable or facts.field_conflict or facts.name_conflict
    if cause:
        return False, cause.reason, cause.message
    return True, "Applied", "all objects are as desired"
