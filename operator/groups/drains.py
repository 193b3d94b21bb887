"""Drains: how long a group on a node that is being drained waits for the one that replaces it.

    node is cordoned ──> another group is created ──> it serves ──> the group is deleted, and the drain goes on
                                   └── it does not serve within the deadline ──> the group may be evicted

The time is kept in an annotation of the StatefulSet. It begins again for the groups that remain when one of them has
been replaced and its pods end, so that a node with several groups of a service has the deadline for each of them. A
group whose template is lost is not written again, so that its time cannot be kept: it may be evicted at once.
"""

import math
from collections.abc import Iterable, Mapping

from octavo.operator.groups.groups import Group

OVERDUE = 0.0  # Unix time since which a group without a template is being replaced


def drains(keep: Iterable[Group], going: Iterable[Group], now: float) -> Mapping[int, float]:
    """Unix time since which each group is being replaced for a drain, by index. going: groups that terminate."""
    replaced_at = max((group.deleted_at for group in going if group.drained), default=-math.inf)
    return {
        group.index: OVERDUE if group.template is None else max(group.drain_since(now), replaced_at)
        for group in keep
        if group.draining
    }


def is_overdue(since: Mapping[int, float], deadline_s: float, now: float) -> bool:
    """True once a group has waited for so long: then groups may be evicted, one at a time."""
    return any(now - began >= deadline_s for began in since.values())


def next_overdue(since: Mapping[int, float], deadline_s: float, now: float) -> float | None:
    """Seconds until `is_overdue` may change; None: never."""
    due = [began + deadline_s - now for began in since.values() if now - began < deadline_s]
    return min(due) + 0.1 if due else None
