"""State of a group as the status shows it."""

from octavo.operator.groups.groups import Group
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.conditions.facts import Facts
from octavo.operator.planning.diagnosis import NODE_LOST, started

_PHASES = {
    "STARTING": "Starting",
    "FETCHING": "Fetching",
    "LOADING": "Loading",
    "WARMING": "Warming",
    "DRAINING": "Draining",
}
_PENDING = frozenset(
    {
        "Unschedulable",
        "SchedulingGated",
        "VolumePending",
        "FailedAttachVolume",
        "ImagePullBackOff",
        "QuotaExceeded",
        "PodSecurityViolation",
        "FailedCreate",
    }
)


def state_of(group: Group, cause: Cause | None) -> tuple[str, int | None]:
    """State of a group for the status, and its progress in percent while it fetches or loads, else None."""
    if group.terminating:
        return "Draining", None
    if group.serving:
        return ("Asleep" if group.report and group.report.phase == "ASLEEP" else "Serving"), None
    if cause and cause.reason in _PENDING:
        return "Pending", None
    runs = any(started(pod) for pod in group.pods)
    failed = group.report is not None and group.report.phase == "FAILED"
    if cause and (failed or not runs or group.report is None or cause.reason == NODE_LOST):
        return "Failed", None
    if group.report:
        phase = group.report.phase
        measured = phase in ("FETCHING", "LOADING")
        return _PHASES.get(phase, "Starting"), group.report.progress_percent if measured else None
    return ("Starting" if runs else "Pending"), None


def waiting(facts: Facts) -> Cause:
    """State of the first group that does not serve yet."""
    for group in sorted(facts.current, key=lambda group: group.index):
        if not group.serving:
            if wait := facts.waits.get(group.index):
                return wait
            state, progress = state_of(group, facts.causes.get(group.index))
            shown = f"{state} {progress} %" if progress is not None else state
            return Cause(state, f"{facts.service}-{group.index}: {shown}")
    return Cause("Pending", "no group has been created yet")
