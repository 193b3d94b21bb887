"""Drains: how long a group on a node that is being drained waits for the one that replaces it.

    node is cordoned ──> another group is created ──> it serves ──> the group is deleted, and the drain goes on
                                   └── it does not serve within the deadline ──> the group may be evicted

The time is kept in an annotation of the StatefulSet. It begins again for the groups that remain when one of them has
been replaced, so that a node with several groups of a service has the deadline for each of them.
"""

from collections.abc import Iterable, Mapping

from octavo.operator.groups.groups import Group


def drains(keep: Iterable[Group], gone: Iterable[Group], now: float) -> Mapping[int, float]:
    """Unix time since which each group is being replaced for a drain, by index. gone: groups that are deleted now."""
    is_replaced = any(group.draining for group in gone)
    return {group.index: now if is_replaced else group.drain_since(now) for group in keep if group.draining}


def is_overdue(since: Mapping[int, float], deadline_s: float, now: float) -> bool:
    """True once a group has waited for so long: then groups may be evicted, one at a time."""
    return any(now - began >= deadline_s for began in since.values())


def next_overdue(since: Mapping[int, float], deadline_s: float, now: float) -> float | None:
    """Seconds until `is_overdue` may change; None: never."""
    due = [began + deadline_s - now for began in since.values() if now - began < deadline_s]
    return min(due) + 0.1 if due else None
