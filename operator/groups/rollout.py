"""Rollout: the next step towards `desired` groups of the target revision, from the observed groups alone.

    least = desired - maxUnavailable             groups that the rollout leaves serving
    room  = desired + maxSurge - existing        groups that may be created; terminating ones exist; one more while a
                                                 group is drained

    old group                    deleted
    never served                 at once, so that a bad revision can be taken back; unless `least` needs it
    serves, or down for less     while more than `least` groups are left
    than DOWN_S
    down for longer              at once if a group of the target serves; else like a group that serves

    groups to create             of the target, but while old groups have served, no more than maxSurge + maxUnavailable
                                 of its groups that do not serve; the rest are divided by the groups that serve of each

A group on a node that is drained (`Group.draining`) is replaced as an old one is, but by one of the same revision: it
goes when as many others serve as are desired.

A new group gets the lowest index that no group or pod occupies. Deleting a StatefulSet sends SIGTERM to its pods, which
drain themselves; the index is free once the pods are deleted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from octavo.operator.groups.drains import drains
from octavo.operator.groups.groups import GangBackoff, Group, condition, deleting, unix

UNSCHEDULABLE_S = 60.0  # until the status reports that a surge group is unschedulable
# A group that has served counts as serving until it has been down for so long. A rank is replaced within seconds, but
# an eviction or the reboot of a node ends with a load of the weights: minutes for a large model.
DOWN_S = 600.0


@dataclass(frozen=True, slots=True)
class Goal:
    """Desired groups and limits of the rollout. revision: the target, which may be one that was rolled back to."""

    groups: int
    revision: str
    max_surge: int
    max_unavailable: int
    not_growing: frozenset[str] = frozenset()  # old revisions of which no group may be created

    @property
    def least(self) -> int:
        """Groups that the rollout leaves serving."""
        return max(0, self.groups - self.max_unavailable)


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group to create."""

    index: int
    revision: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step: groups to create, groups to keep, groups to delete with the reason."""

    create: tuple[NewGroup, ...]
    keep: tuple[Group, ...]
    delete: tuple[tuple[Group, str], ...]
    gang_backoffs: Mapping[int, GangBackoff] = field(default_factory=dict)  # of kept groups, by index
    drains: Mapping[int, float] = field(default_factory=dict)  # of kept groups, by index: see drains.py


def step(goal: Goal, observed: Iterable[Group], now: float, foreign_indexes: frozenset[int] = frozenset()) -> Step:
    """The next step. now: Unix time in seconds. foreign_indexes: whose StatefulSet name belongs to another owner."""
    existing = tuple(observed)
    live = [group for group in existing if not group.terminating]
    to_delete = _to_delete(goal, live, now)
    gone = {group.index for group, _ in to_delete}
    keep = tuple(group for group in live if group.index not in gone)
    room = max(0, goal.groups + goal.max_surge + any(group.draining for group in keep) - len(existing))
    if any(group.owner_unknown for group in existing):
        room = 0
    occupied = {group.index for group in existing} | foreign_indexes
    revisions = _to_create(goal, keep, room, now)
    free = _free(occupied, len(revisions))
    drained = drains(keep, (group for group in existing if group.terminating), now)
    return Step(tuple(map(NewGroup, free, revisions)), keep, tuple(to_delete), drains=drained)


def is_down(group: Group, now: float) -> bool:
    """True for a group that has served, but not for DOWN_S."""
    since = group.down_since(now)
    return since is not None and now - since >= DOWN_S


def _counts_as_serving(group: Group, now: float) -> bool:
    return group.served and not is_down(group, now)


def next_down(goal: Goal, observed: Iterable[Group], now: float) -> float | None:
    """Seconds until an old group counts as down; None: never."""
    times = [group.down_since(now) for group in observed if not group.terminating and group.revision != goal.revision]
    due = [since + DOWN_S - now for since in times if since is not None and now - since < DOWN_S]
    return min(due) + 0.1 if due else None


def _to_delete(goal: Goal, live: list[Group], now: float) -> list[tuple[Group, str]]:
    if goal.groups == 0:
        return [(group, "no groups are desired") for group in live]
    # Surplus groups are deleted from the end of this order.
    current = [group for group in live if group.revision == goal.revision]
    drained = sorted((group for group in current if group.draining), key=lambda group: (group.serving, -group.index))
    order = sorted(
        (group for group in current if not group.draining),
        key=lambda group: (not group.serving, not group.served, group.index),
    )
    surplus = [(group, _desired(goal)) for group in order[goal.groups :]]
    elsewhere = sum(group.serving for group in order[: goal.groups])
    replaced = drained[: max(0, elsewhere + len(drained) - goal.groups)]
    serving = elsewhere + sum(group.serving for group in drained if group not in replaced)
    old = [group for group in live if group.revision != goal.revision]
    lost = [group for group in old if serving and is_down(group, now)]
    held = [group for group in old if group.served and group not in lost]
    # Groups that do not serve go first: so serving ones never go below the least number. Then drained ones do.
    held.sort(key=lambda group: (group.serving, not group.draining, group.down_since(now) or now, -group.index))
    spare = max(0, serving + len(held) - goal.least)
    return [
        *surplus,
        *((group, f"{group.drained}, and as many groups as desired serve elsewhere") for group in replaced),
        *((group, f"{_replaced(goal, group)}; it has not served for {DOWN_S:.0f} s") for group in lost),
        *((group, _replaced(goal, group)) for group in held[:spare]),
        *((group, f"{_replaced(goal, group)}; it has never served") for group in _never_served(goal, live, held, now)),
    ]


def _desired(goal: Goal) -> str:
    return "1 group is desired" if goal.groups == 1 else f"{goal.groups} groups are desired"


def _replaced(goal: Goal, group: Group) -> str:
    return f"{goal.revision} replaces its revision {group.revision or 'which is lost'}"


def _never_served(goal: Goal, live: list[Group], held: list[Group], now: float) -> list[Group]:
    """Old groups that go because they have never served: all but the ones that the growing revision needs."""
    serving = sum(group.serving for group in live if group.revision == goal.revision)
    needed = max(0, goal.least - serving - sum(not group.draining for group in held))
    growing = _growing(goal, held, now)
    young = [group for group in live if group.revision != goal.revision and not group.served]
    kept = [group.index for group in young if growing is not None and group.revision == growing.revision][:needed]
    return [group for group in young if group.index not in kept]


def _growing(goal: Goal, old: Iterable[Group], now: float) -> Group | None:
    """A group of the old revision that grows beside the target: of which most groups count as serving. None: none does.

    Its template must be kept, so that there can be more of it.
    """
    able = [group for group in old if _counts_as_serving(group, now) and group.template is not None]
    able = [group for group in able if group.revision not in goal.not_growing]
    counts = Counter(group.revision for group in able)
    return max(able, key=lambda group: (counts[group.revision], group.revision), default=None)


def _to_create(goal: Goal, keep: tuple[Group, ...], room: int, now: float) -> list[str]:
    """Revisions of the groups to create."""
    current = [group for group in keep if group.revision == goal.revision]
    old = [group for group in keep if group.revision != goal.revision]
    missing = max(0, goal.groups - sum(not group.draining for group in current))
    growing = _growing(goal, old, now)
    if growing is None:
        return [goal.revision] * min(missing, room)
    serving = sum(_counts_as_serving(group, now) for group in current)
    attempts = max(0, goal.max_surge + goal.max_unavailable - (len(current) - serving))
    fresh = min(room, attempts)
    fresh += (room - fresh) * serving // (serving + len(old))
    fresh = min(fresh, missing)
    staying = sum(not group.draining for group in old)
    grow = min(room - fresh, max(0, goal.least - serving - staying))
    return [goal.revision] * fresh + [growing.revision] * grow


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
