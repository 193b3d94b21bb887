"""Gang scheduling: a group that is partially scheduled is scaled to zero for a while, so that another group can start.

    partially scheduled ──> scaled to zero for the back-off ──> all pods again ──> serves: the back-off is reset
            ^                                                        │
            └──────────── partially scheduled again: a longer back-off

A partially scheduled group may hold nodes that another service needs: after spec.scheduling.gangBackoffAfter it backs
off. Two of one service each hold nodes that the other needs: after a fifth of that time the group with fewer scheduled
pods backs off. The time counts from the last pod that was scheduled: a group that still gains nodes keeps them. At most
one group of a service is scaled to zero at a time. The back-off is stored in an annotation of the StatefulSet, so that
it survives a restart of the operator.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from octavo.operator.groups.groups import GangBackoff, Group, condition, deleting, timestamp, unix
from octavo.operator.groups.rollout import unschedulable_since

BACKOFF_AFTER_S = 300.0  # default of spec.scheduling.gangBackoffAfter
CONFLICT = 0.2  # part of it for two groups: where there is room, the scheduler places pods within seconds
FIRST_BACKOFF_S, MAX_BACKOFF_S = 20.0, 600.0  # doubled at each attempt; jitter adds up to half


def backoffs(kept: Iterable[Group], backoff_after_s: float, now: float) -> Mapping[int, GangBackoff]:
    """The back-off of each group that has one, by index. kept: groups that stay; backoff_after_s: inf for never; now:
    Unix time in seconds."""
    groups = tuple(kept)
    current = {group.index: backoff for group in groups if (backoff := _current_backoff(group, now))}
    due = [group for group, at in _due(groups, backoff_after_s) if at <= now]
    if not due or any(backoff.scaled_to_zero for backoff in current.values()):
        return current
    chosen = min(due, key=lambda group: (_placed(group), _attempts(group), -group.index))
    attempts = _attempts(chosen) + 1
    return {
        **current,
        chosen.index: GangBackoff(attempts, now + backoff_s(chosen, attempts), scaled_to_zero=True),
    }


def _current_backoff(group: Group, now: float) -> GangBackoff | None:
    """A group stays scaled to zero until its back-off has passed and its earlier pods are gone."""
    old = group.gang_backoff
    if old is None or group.serving:
        return None
    return replace(old, scaled_to_zero=now < old.until_s or (old.scaled_to_zero and bool(group.pods)))


def backoff_s(group: Group, attempt: int) -> float:
    """Length of the back-off in seconds. attempt: from 1. The jitter is a function of the StatefulSet's uid."""
    assert group.live is not None, "only groups that exist back off"
    digest = hashlib.sha256(f"{group.live['metadata'].get('uid')}/{attempt}".encode()).digest()
    return float(min(FIRST_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S) * (1 + digest[0] / 512))


def next_step(kept: Iterable[Group], backoff_after_s: float, now: float) -> float | None:
    """Seconds until `backoffs` may return another result without a change of the groups; None: never."""
    groups = tuple(kept)
    times = [group.gang_backoff.until_s for group in groups if group.gang_backoff and now < group.gang_backoff.until_s]
    times += [at for _, at in _due(groups, backoff_after_s) if now < at < math.inf]
    return min(times) - now + 0.1 if times else None


def encode(backoff: GangBackoff) -> str:
    """Text of the annotation, which `Group.gang_backoff` parses."""
    return json.dumps({"attempts": backoff.attempts, "until": timestamp(backoff.until_s)})


def _due(groups: tuple[Group, ...], backoff_after_s: float) -> list[tuple[Group, float]]:
    """Partially scheduled groups, and the Unix time from which each may back off."""
    partially_scheduled = [
        (group, since) for group in groups if (since := _partially_scheduled_since(group)) is not None
    ]
    allowed_s = CONFLICT * backoff_after_s if len(partially_scheduled) > 1 else backoff_after_s
    return [(group, since + allowed_s) for group, since in partially_scheduled]


def _partially_scheduled_since(group: Group) -> float | None:
    """Unix time since which some pods are unschedulable and no other has been scheduled; None: all or none are."""
    since, placed = unschedulable_since(group), _placed_at(group)
    return max(since, *placed) if since is not None and placed else None


def _placed(group: Group) -> int:
    """Number of pods that have a node."""
    return len(_placed_at(group))


def _placed_at(group: Group) -> list[float]:
    """Unix times at which the pods that have a node were scheduled."""
    found = (condition(pod, "PodScheduled") for pod in group.pods if not deleting(pod))
    return [unix(entry.get("lastTransitionTime")) or 0.0 for entry in found if entry.get("status") == "True"]


def _attempts(group: Group) -> int:
    return group.gang_backoff.attempts if group.gang_backoff else 0
