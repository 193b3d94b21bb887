"""Facts of one observation of a service, from which each condition is computed."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.operator.groups.groups import Group
from octavo.operator.groups.rollout import Goal
from octavo.operator.planning.diagnosis import Cause

Verdict = tuple[bool, str, str]  # status, reason, message


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

    @property
    def no_groups_desired(self) -> Verdict:
        """Verdict of a condition that needs a group, where none is desired."""
        if self.paused:
            return False, "Paused", "spec.paused is true: there are no groups"
        return False, "NoReplicas", "spec.replicas is 0: there are no groups"


def count(number: int, noun: str) -> str:
    """Such as 1 group, 2 groups."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
