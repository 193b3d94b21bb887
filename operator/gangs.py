"""The way out of half-groups: pods that have a node wait for others that find none, while another group's do the same.

    torn: some pods placed, some not ──> away: no pods, until a time ──> all pods anew ──> serves: all is forgotten
                                         ^── torn again: a longer time ──'

Two groups that are torn hold what the other needs: the one that holds less goes away soon. What a lone one needs may be
held by another service's, so that it goes away too, after longer. Never two of a service at once. The times are in an
annotation of the StatefulSet: a restarted operator goes on where it was.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from octavo.operator.groups import Group, Retreat, condition, deleting, timestamp
from octavo.operator.rollout import unschedulable_since

PAIR_S = 60.0  # how long two groups may be torn: the scheduler places pods within seconds where there is room
ALONE_S = 300.0  # how long one may be: long enough for a cluster that adds a node
FIRST_S, LAST_S = 20.0, 600.0  # away at the first time, and at most; each time twice as long, and up to half more


def retreats(kept: Iterable[Group], now: float) -> Mapping[int, Retreat]:
    """What the StatefulSet of each group must remember, by index; of groups without an entry, nothing."""
    groups = tuple(kept)
    known = {group.index: retreat for group in groups if (retreat := _known(group, now))}
    due = [group for group, at in _due(groups) if at <= now]
    if not due or any(retreat.away for retreat in known.values()):
        return known
    goes = min(due, key=lambda group: (_placed(group), _attempts(group), -group.index))
    attempts = _attempts(goes) + 1
    return {**known, goes.index: Retreat(attempts, now + away_s(goes, attempts), away=True)}


def _known(group: Group, now: float) -> Retreat | None:
    """It stays away until its time is over and its pods of before are gone."""
    old = group.retreat
    if old is None or group.serving:
        return None
    return replace(old, away=now < old.until_s or (old.away and bool(group.pods)))


def away_s(group: Group, attempt: int) -> float:
    """For how long it goes away at this attempt (from 1). The same for the same StatefulSet, another for others."""
    assert group.live is not None, "only groups that exist retreat"
    digest = hashlib.sha256(f"{group.live['metadata'].get('uid')}/{attempt}".encode()).digest()
    return float(min(FIRST_S * 2 ** (attempt - 1), LAST_S) * (1 + digest[0] / 512))


def next_step(kept: Iterable[Group], now: float) -> float | None:
    """Seconds until `retreats` may say something else; None when only changes matter."""
    groups = tuple(kept)
    times = [group.retreat.until_s for group in groups if group.retreat and now < group.retreat.until_s]
    times += [at for _, at in _due(groups) if now < at]
    return min(times) - now + 0.1 if times else None


def encode(retreat: Retreat) -> str:
    """The annotation's text; `groups` reads it."""
    return json.dumps({"attempts": retreat.attempts, "until": timestamp(retreat.until_s)})


def _due(groups: tuple[Group, ...]) -> list[tuple[Group, float]]:
    """Torn groups, and when each may go away."""
    torn = [(group, since) for group in groups if (since := _torn_since(group)) is not None]
    patience_s = PAIR_S if len(torn) > 1 else ALONE_S
    return [(group, since + patience_s) for group, since in torn]


def _torn_since(group: Group) -> float | None:
    return unschedulable_since(group) if _placed(group) else None


def _placed(group: Group) -> int:
    """Pods that hold room on a node."""
    pods = (pod for pod in group.pods if not deleting(pod))
    return sum(condition(pod, "PodScheduled").get("status") == "True" for pod in pods)


def _attempts(group: Group) -> int:
    return group.retreat.attempts if group.retreat else 0
