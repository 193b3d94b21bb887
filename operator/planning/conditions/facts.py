"""Facts of one observation of a service, from which each condition is computed."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.operator.groups.course import Course
from octavo.operator.groups.groups import Group
from octavo.operator.groups.rollout import Goal
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.routers.counts import Routers
from octavo.operator.planning.routers.keys import KeyState

Verdict = tuple[bool, str, str]  # status, reason, message


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of the conditions."""

    service: str
    goal: Goal
    course: Course
    paused: bool
    live: tuple[Group, ...]  # groups that are not deleted
    terminating: int  # number of groups that are being deleted
    unknown_fields: str  # of the spec, which this release leaves out; "" if there are none
    blocked: Cause | None  # the spec or a foreign object prevents any change
    causes: Mapping[int, Cause]  # failures of groups that do not serve, by index
    waits: Mapping[int, Cause]  # what other groups wait for, by index
    routers: Routers
    router_cause: Cause | None  # failure of a router
    router_wait: Cause | None  # what a router waits for
    refused: Cause | None  # a write that the API server refused
    refused_for_serving: Cause | None  # the same, of an object that serving needs
    unreadable: Cause | None  # a kind of object that the operator may not read
    field_conflict: Cause | None  # a field that is changed each time after it was applied
    name_conflict: Cause | None  # the name of an object that serving does not need is in use
    surge_unschedulable: bool
    keys: KeyState
    drain_overdue: bool  # a group on a node that is drained has not been replaced in time
    has_lost: bool  # a group that served does not: fewer groups than desired are a failure, not a start

    @property
    def current(self) -> tuple[Group, ...]:
        """Groups of the target revision."""
        return tuple(group for group in self.live if group.revision == self.goal.revision)

    @property
    def serving(self) -> int:
        return sum(group.serving for group in self.live)

    def cause_of(self, index: int) -> Cause | None:
        """Why a group does not serve: its failure, or what it waits for."""
        return self.causes.get(index) or self.waits.get(index)

    @property
    def draining(self) -> tuple[Group, ...]:
        """Groups that are being replaced, since their nodes are drained."""
        return tuple(group for group in self.live if group.draining)

    @property
    def serving_current(self) -> int:
        return sum(group.serving for group in self.current)

    @property
    def surge(self) -> bool:
        """There are groups beside the desired number, during a rollout."""
        return len(self.live) > self.goal.groups

    @property
    def group_cause(self) -> Cause | None:
        """First cause, of groups of the desired revision before others."""
        order = sorted(self.live, key=lambda group: (group.revision != self.goal.revision, group.index))
        return next((self.causes[group.index] for group in order if group.index in self.causes), None)

    @property
    def no_groups_desired(self) -> Verdict:
        """Verdict of a condition that needs a group, where none is desired."""
        if self.paused:
            return False, "Paused", "spec.paused is true: there are no groups"
        return False, "NoReplicas", "spec.replicas is 0: there are no groups"


def count(number: int, noun: str) -> str:
    """Such as 1 group, 2 groups."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
