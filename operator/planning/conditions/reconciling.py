"""Condition Reconciling: the service is on its way to the desired state. kstatus waits while it is true."""

from octavo.operator.planning.conditions import progressing, stalled
from octavo.operator.planning.conditions.facts import Facts, Verdict


def verdict(facts: Facts) -> Verdict:
    moves, reason, message = progressing.verdict(facts)
    if moves or stalled.is_retried(reason):
        return True, reason, message
    return False, reason, message
