"""Course and goal of a service's rollout, from its spec and its kept revisions."""

from collections.abc import Mapping

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups.course import Course, Policy, course
from octavo.operator.groups.groups import Group
from octavo.operator.groups.history import Kept
from octavo.operator.groups.options import Options
from octavo.operator.groups.revision import worker_revision
from octavo.operator.groups.rollout import Goal
from octavo.operator.planning.cause import Cause


def course_of(
    service: InferenceService,
    options: Options,
    kept: Mapping[str, Kept],
    live: tuple[Group, ...],
    causes: Mapping[int, Cause],
    is_stopped: bool,
    now: float,
) -> Course:
    """The course. causes: why groups do not serve, by index. is_stopped: no group may be created or deleted."""
    desired, rollout = worker_revision(service), service.spec.rollout
    groups = 0 if is_stopped else _desired(service)  # what is not tried is not overdue
    policy = Policy(groups, rollout.progress_deadline_s, rollout.on_failure == "rollback", _barred(options, kept))
    failing = (group.index for group in live if group.revision == desired and group.index in causes)
    cause = next((causes[index] for index in failing), Cause("", ""))
    return course(desired, kept, live, policy, (cause.reason, cause.message), now)


def goal_of(service: InferenceService, options: Options, kept: Mapping[str, Kept], way: Course) -> Goal:
    """The goal of the next step."""
    rollout = service.spec.rollout
    return Goal(_desired(service), way.target, rollout.max_surge, rollout.max_unavailable, _barred(options, kept))


def _desired(service: InferenceService) -> int:
    return 0 if service.spec.paused else service.spec.replicas


def _barred(options: Options, kept: Mapping[str, Kept]) -> frozenset[str]:
    """Earlier revisions of which no group may be created, since they mount a folder of the node."""
    return frozenset(
        item.revision for item in kept.values() if not all(map(options.host_path_allowed, item.host_folders))
    )
