"""The next step of the groups towards `wish` groups of one revision, derived from what is observed alone.

    room = wish + maxSurge - groups that exist or are going          may be made
    spare = groups that serve - (wish - maxUnavailable)              old ones may go
    an old group that does not serve goes at once                    so a bad revision can always be taken back
    beyond wish, groups of the wished revision go: those that do not serve first, then the highest index

A new group takes the lowest index that neither a group nor a left-over pod holds. The old group's drain is its pods'
own work: deleting its StatefulSet sends SIGTERM, and its index and its room are free when the pods are gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from octavo.operator.groups import GangBackoff, Group, condition, deleting, unix

UNSCHEDULABLE_S = 60.0  # how long a surge group may wait for room before the status says what helps


@dataclass(frozen=True, slots=True)
class Goal:
    """What the user wishes."""

    groups: int
    revision: str
    max_surge: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: indexes to make, groups to keep as they are, groups to delete and why."""

    create: tuple[int, ...]
    keep: tuple[Group, ...]
    delete: tuple[tuple[Group, str], ...]
    gang_backoffs: Mapping[int, GangBackoff] = field(default_factory=dict)  # of groups that are kept, by index


def step(goal: Goal, observed: Iterable[Group], taken_names: frozenset[int] = frozenset()) -> Step:
    """The next step. `taken_names`: indexes whose name a foreign object holds."""
    taken = tuple(observed)
    live = [group for group in taken if not group.leaving]
    doomed = _doomed(goal, live)
    gone = {group.index for group, _ in doomed}
    keep = tuple(group for group in live if group.index not in gone)
    current = sum(group.revision == goal.revision for group in keep)
    wanted = min(goal.groups - current, goal.groups + goal.max_surge - len(taken))
    if any(group.unsettled for group in taken):
        wanted = 0
    occupied = {group.index for group in taken} | taken_names
    return Step(_free(occupied, wanted), keep, tuple(doomed))


def _doomed(goal: Goal, live: list[Group]) -> list[tuple[Group, str]]:
    current = [group for group in live if group.revision == goal.revision]
    old = [group for group in live if group.revision != goal.revision]
    least = max(0, goal.groups - goal.max_unavailable)
    doomed = [(group, f"it is of revision {group.revision} and does not serve") for group in old if not group.serving]
    # Of too many present ones, the last in this order go; the rest serve at least as well.
    order = sorted(current, key=lambda group: (not group.serving, group.index))
    doomed += [(group, f"{goal.groups} groups are wished") for group in order[goal.groups :]]
    serving = sum(group.serving for group in order[: goal.groups])
    standing = [group for group in old if group.serving]
    spare = max(0, serving + len(standing) - least)
    for group in sorted(standing, key=lambda group: -group.index)[:spare]:
        why = "no groups are wished" if goal.groups == 0 else f"{goal.revision} replaces its revision {group.revision}"
        doomed.append((group, why))
    return doomed


def _free(occupied: set[int], count: int) -> tuple[int, ...]:
    free: list[int] = []
    index = 0
    while len(free) < count:
        if index not in occupied:
            free.append(index)
        index += 1
    return tuple(free)


def unschedulable_since(group: Group) -> float | None:
    """Since when (Unix time) the scheduler finds no node for a pod of the group."""
    times = [
        unix(found.get("lastTransitionTime"))
        for found in (condition(pod, "PodScheduled") for pod in group.pods if not deleting(pod))
        if found.get("status") == "False" and found.get("reason") == "Unschedulable"
    ]
    return min((time for time in times if time is not None), default=None)


def surge_waits_since(goal: Goal, observed: Iterable[Group]) -> float | None:
    """Since when a new group waits for a node while old ones hold theirs; None if none does."""
    live = [group for group in observed if not group.leaving]
    if goal.max_surge == 0 or all(group.revision == goal.revision for group in live):
        return None
    waits = [_room_missing_since(group) for group in live if group.revision == goal.revision]
    return min((time for time in waits if time is not None), default=None)


def _room_missing_since(group: Group) -> float | None:
    """Since when the group is unschedulable (Unix time); 0: it has backed off before, which takes longer."""
    since = unschedulable_since(group)
    return 0.0 if group.gang_backoff and (group.gang_backoff.scaled_to_zero or since is not None) else since
