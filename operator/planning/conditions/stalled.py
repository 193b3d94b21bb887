"""Condition Stalled: the desired state cannot be reached without a change of the spec or of the cluster. kstatus takes
it for a failure."""

from octavo.operator.planning.conditions import progressing
from octavo.operator.planning.conditions.facts import Facts, Verdict
from octavo.shared.failure_reasons import FailureReason


def verdict(facts: Facts) -> Verdict:
    moves, reason, message = progressing.verdict(facts)
    if moves or reason == progressing.COMPLETE or is_retried(reason):
        return False, "NotStalled", "nothing keeps the service from its desired state"
    return True, reason, message


def is_retried(reason: str) -> bool:
    """True for a failure after which the group starts again by itself, so that it may pass."""
    known = FailureReason.known(reason)
    return reason == "CrashLoop" or (known is not None and known.restart_helps)
