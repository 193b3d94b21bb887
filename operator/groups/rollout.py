"""Rollout: the next step towards `desired` groups of the desired revision, from the observed groups alone.

    room = desired + maxSurge - existing groups, including terminating ones      may be created
    spare = serving groups - (desired - maxUnavailable)                          old groups may be deleted
    an old group that does not serve is deleted at once                          so a bad revision can be rolled back
    surplus groups of the desired revision are deleted: first groups that do not serve, then the highest index

A new group gets the lowest index that no group or pod occupies. Deleting a StatefulSet sends SIGTERM to its pods, which
drain themselves; the index is free once the pods are deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from octavo.operator.groups.groups import GangBackoff, Group, condition, deleting, unix

UNSCHEDULABLE_S = 60.0  # until the status reports that a surge group is unschedulable


@dataclass(frozen=True, slots=True)
class Goal:
    """Desired groups and limits of the rollout."""

    groups: int
    revision: str
    max_surge: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step: indexes of groups to create, groups to keep, groups to delete with the reason."""

    create: tuple[int, ...]
    keep: tuple[Group, ...]
    delete: tuple[tuple[Group, str], ...]
    gang_backoffs: Mapping[int, GangBackoff] = field(default_factory=dict)  # of kept groups, by index


def step(goal: Goal, observed: Iterable[Group], foreign_indexes: frozenset[int] = frozenset()) -> Step:
    """The next step. foreign_indexes: indexes whose StatefulSet name belongs to another owner."""
    existing = tuple(observed)
    live = [group for group in existing if not group.terminating]
    to_delete = _to_delete(goal, live)
    gone = {group.index for group, _ in to_delete}
    keep = tuple(group for group in live if group.index not in gone)
    current = sum(group.revision == goal.revision for group in keep)
    count = min(goal.groups - current, goal.groups + goal.max_surge - len(existing))
    if any(group.owner_unknown for group in existing):
        count = 0
    occupied = {group.index for group in existing} | foreign_indexes
    return Step(_free(occupied, count), keep, tuple(to_delete))


def _to_delete(goal: Goal, live: list[Group]) -> list[tuple[Group, str]]:
    current = [group for group in live if group.revision == goal.revision]
    old = [group for group in live if group.revision != goal.revision]
    least = max(0, goal.groups - goal.max_unavailable)
    to_delete = [
        (group, f"it is of revision {group.revision} and does not serve") for group in old if not group.serving
    ]
    # Surplus groups are deleted from the end of this order.
    order = sorted(current, key=lambda group: (not group.serving, group.index))
    to_delete += [(group, f"{goal.groups} groups are desired") for group in order[goal.groups :]]
    serving = sum(group.serving for group in order[: goal.groups])
    old_serving = [group for group in old if group.serving]
    spare = max(0, serving + len(old_serving) - least)
    for group in sorted(old_serving, key=lambda group: -group.index)[:spare]:
        why = "no groups are desired" if goal.groups == 0 else f"{goal.revision} replaces its revision {group.revision}"
        to_delete.append((group, why))
    return to_delete


def _free(occupied: set[int], count: int) -> tuple[int, ...]:
    free: list[int] = []
    index = 0
    while len(free) < count:
        if index not in occupied:
            free.append(index)
        index += 1
    return tuple(free)


def unschedulable_since(group: Group) -> float | None:
    """Unix time since which a pod of the group is unschedulable; None if none is."""
    times = [
        unix(found.get("lastTransitionTime"))
        for found in (condition(pod, "PodScheduled") for pod in group.pods if not deleting(pod))
        if found.get("status") == "False" and found.get("reason") == "Unschedulable"
    ]
    return min((time for time in times if time is not None), default=None)


def surge_waits_since(goal: Goal, observed: Iterable[Group]) -> float | None:
    """Unix time since which a new group is unschedulable while old groups exist; None if none is."""
    live = [group for group in observed if not group.terminating]
    if goal.max_surge == 0 or all(group.revision == goal.revision for group in live):
        return None
    waits = [_room_missing_since(group) for group in live if group.revision == goal.revision]
    return min((time for time in waits if time is not None), default=None)


def _room_missing_since(group: Group) -> float | None:
    """Since when the group is unschedulable (Unix time); 0: it has backed off before, which takes longer."""
    since = unschedulable_since(group)
    return 0.0 if group.gang_backoff and (group.gang_backoff.scaled_to_zero or since is not None) else since
