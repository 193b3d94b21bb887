"""The conditions Ready, Progressing, ModelLoaded, RouterReady and Degraded, computed from one observation.

`lastTransitionTime` changes only with the status, not with reason and message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.groups.groups import Group, timestamp
from octavo.operator.groups.rollout import Goal
from octavo.operator.planning.diagnosis import Cause, started

Json = dict[str, Any]  # Any: Kubernetes JSON


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of the conditions."""

    service: str
    goal: Goal
    paused: bool
    live: tuple[Group, ...]  # groups that are not deleted
    terminating: int  # number of groups that are being deleted
    blocked: Cause | None  # the spec or a foreign object prevents any change
    causes: Mapping[int, Cause]  # of groups that do not serve, by index
    routers_desired: int
    routers_ready: int
    router_cause: Cause | None
    surge_unschedulable: bool
    has_served: bool  # a group has served: fewer groups than desired are a failure, not the first start

    @property
    def current(self) -> tuple[Group, ...]:
        return tuple(group for group in self.live if group.revision == self.goal.revision)

    @property
    def serving(self) -> int:
        return sum(group.serving for group in self.live)

    @property
    def group_cause(self) -> Cause | None:
        """First cause, of groups of the desired revision before others."""
        order = sorted(self.live, key=lambda group: (group.revision != self.goal.revision, group.index))
        return next((self.causes[group.index] for group in order if group.index in self.causes), None)


Verdict = tuple[bool, str, str]  # status, reason, message


def conditions(facts: Facts, previous: Mapping[str, Any], generation: int, now: float) -> list[Json]:  # Any: JSON
    """All conditions, in the order of `_CONDITIONS`. previous: the last status; now: Unix time in seconds."""
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    return [_condition(kind, evaluate(facts), old.get(kind), generation, now) for kind, evaluate in _CONDITIONS.items()]


def _condition(kind: str, verdict: Verdict, old: Json | None, generation: int, now: float) -> Json:
    holds, reason, message = verdict
    status = "True" if holds else "False"
    kept = old["lastTransitionTime"] if old and old.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": kept or timestamp(now),
        "reason": reason,
        "message": message,
    }


def has_served_before(previous: Mapping[str, Any], revision: str) -> bool:  # Any: JSON
    """True if a group served at the last observation, or Degraded was true for the same revision.

    So Degraded, once true, stays true until all groups serve, even if the cause changes meanwhile.
    """
    degraded = any(
        entry["type"] == "Degraded" and entry["status"] == "True" for entry in previous.get("conditions") or ()
    )
    return bool(previous.get("readyReplicas") or (degraded and previous.get("revision") == revision))


def _ready(facts: Facts) -> Verdict:
    if facts.blocked and (facts.serving == 0 or facts.blocked.reason == "NameConflict"):
        return False, facts.blocked.reason, facts.blocked.message
    if facts.goal.groups == 0:
        return _no_groups_desired(facts)
    if facts.serving == 0:
        cause = facts.group_cause or waiting(facts)
        return False, cause.reason, cause.message
    if facts.routers_ready == 0:
        return _router_ready(facts)
    if facts.serving < facts.goal.groups:
        why = f"; {facts.group_cause.message}" if facts.group_cause else ""
        return True, "PartiallyAvailable", f"{facts.serving} of {facts.goal.groups} groups serve{why}"
    return True, "Serving", f"{_count(facts.serving, 'group')} {'serves' if facts.serving == 1 else 'serve'}"


def _no_groups_desired(facts: Facts) -> Verdict:
    if facts.paused:
        return False, "Paused", "spec.paused is true: there are no groups"
    return False, "NoReplicas", "spec.replicas is 0: there are no groups"


def _progressing(facts: Facts) -> Verdict:
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
            f"{_count(len(facts.current), 'group')}, {facts.terminating} terminating, {goal.groups} desired",
        )
    if facts.serving < goal.groups:
        return True, "Starting", waiting(facts).message
    return False, "Complete", f"{_count(goal.groups, 'group')} of revision {goal.revision}, as desired"


def _model_loaded(facts: Facts) -> Verdict:
    if facts.serving:
        return True, "Loaded", f"{_count(facts.serving, 'group')} {'holds' if facts.serving == 1 else 'hold'} the model"
    if facts.blocked:
        return False, facts.blocked.reason, facts.blocked.message
    if facts.goal.groups == 0:
        return _no_groups_desired(facts)
    cause = facts.group_cause or waiting(facts)
    return False, cause.reason, cause.message


def _router_ready(facts: Facts) -> Verdict:
    if facts.routers_ready:
        return True, "Ready", f"{_count(facts.routers_ready, 'router')} ready"
    if facts.routers_desired == 0:
        return False, "NoRouters", "spec.router.replicas is 0: there are no routers"
    if facts.router_cause:
        return False, facts.router_cause.reason, facts.router_cause.message
    return False, "RouterStarting", "no router pod is ready yet"


def _degraded(facts: Facts) -> Verdict:
    cause = facts.blocked or facts.group_cause or facts.router_cause
    if cause:
        return True, cause.reason, cause.message
    if facts.surge_unschedulable:
        return True, "SurgeUnschedulable", _progressing(facts)[2]
    if (facts.has_served or facts.serving) and facts.serving < facts.goal.groups:
        few = f"{facts.serving} of {_count(facts.goal.groups, 'group')} serve"
        return True, "MinimumReplicasUnavailable", f"{few}; {waiting(facts).message}"
    return False, "Healthy", "no failure is known"


def waiting(facts: Facts) -> Cause:
    """State of the first group that does not serve yet."""
    for group in sorted(facts.current, key=lambda group: group.index):
        if not group.serving:
            state, progress = state_of(group, facts.causes.get(group.index))
            shown = f"{state} {progress} %" if progress is not None else state
            return Cause(state, f"{facts.service}-{group.index}: {shown}")
    return Cause("Pending", "no group has been created yet")


_PHASES = {
    "STARTING": "Starting",
    "FETCHING": "Fetching",
    "LOADING": "Loading",
    "WARMING": "Warming",
    "DRAINING": "Draining",
}
_PENDING = frozenset(
    {"Unschedulable", "VolumePending", "ImagePullBackOff", "QuotaExceeded", "PodSecurityViolation", "FailedCreate"}
)


def state_of(group: Group, cause: Cause | None) -> tuple[str, int | None]:
    """State of a group for the status, and its progress in percent while it fetches or loads, else None."""
    if group.terminating:
        return "Draining", None
    if group.serving:
        return "Serving", None
    if cause and cause.reason in _PENDING:
        return "Pending", None
    runs = any(started(pod) for pod in group.pods)
    failed = group.report is not None and group.report.phase == "FAILED"
    if cause and (failed or not runs or group.report is None):
        return "Failed", None
    if group.report:
        phase = group.report.phase
        measured = phase in ("FETCHING", "LOADING")
        return _PHASES.get(phase, "Starting"), group.report.progress_percent if measured else None
    return ("Starting" if runs else "Pending"), None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_CONDITIONS: dict[str, Callable[[Facts], Verdict]] = {
    "Ready": _ready,
    "Progressing": _progressing,
    "ModelLoaded": _model_loaded,
    "RouterReady": _router_ready,
    "Degraded": _degraded,
}
