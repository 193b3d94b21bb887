"""Restores: how often in a row an object was applied again unchanged, since others had changed it or deleted it.

applied ──> changed by others ──> applied again: at once FREE times, then after FIRST_DELAY_S, twice that, ...
   └──────> holds for `settles_s`: the row ends
"""

import math
from dataclasses import dataclass, field, replace

from octavo.operator.groups.snapshot import FieldConflict

FREE = 3  # restores at once: a person's mistake, or a race, is corrected without a delay
FIRST_DELAY_S, MAX_DELAY_S = 2.0, 300.0
ROW_S = 600.0  # a change later than this after an apply begins another row
QUIET_S = 30.0  # at least so long must the object of a conflict hold
SEEN_S = 200.0  # an object that is not as applied is seen more often, while it is desired
Key = tuple[str, str]  # kind, name


@dataclass(frozen=True, slots=True)
class Restores:
    """Of one object. Times are of the monotonic clock."""

    desired: int  # hash of the object as it was last applied
    applied_at: float
    count: int = 0  # restores in this row
    held_s: float = 0.0  # the longest time in this row that an apply has held
    changed_at: float | None = None  # since when the object is not as applied; None: it is
    seen_at: float = -math.inf  # when it was seen last not to be as applied
    looked: bool = False  # for the cause of the last change
    conflict: FieldConflict | None = None  # what was found last

    @property
    def is_conflict(self) -> bool:
        return self.count >= FREE and self.conflict is not None

    @property
    def settles_s(self) -> float:
        """The row ends when the object has held for so long: twice as long as others took to change it so far."""
        return max(QUIET_S, 2 * self.held_s) if self.is_conflict else ROW_S

    @property
    def next_at(self) -> float:
        """When the object may be applied again unchanged."""
        if self.count < FREE:
            return self.applied_at
        return self.applied_at + min(FIRST_DELAY_S * 2.0 ** min(self.count - FREE, 16), MAX_DELAY_S)

    def changed(self, now: float) -> "Restores":
        """The object is not as applied."""
        if self.changed_at is not None:
            return replace(self, seen_at=now)
        held_s = now - self.applied_at
        if held_s > self.settles_s:
            return Restores(self.desired, self.applied_at, changed_at=now, seen_at=now)
        return replace(self, held_s=max(self.held_s, held_s), changed_at=now, seen_at=now)

    def applied(self, desired: int, now: float, holds: bool) -> "Restores":
        """The object was applied. holds: the API server's answer is as desired."""
        count = self.count + (self.changed_at is not None and desired == self.desired)
        changed_at = None if holds else now
        return replace(
            self, desired=desired, applied_at=now, count=count, changed_at=changed_at, seen_at=now, looked=False
        )

    def settled(self, now: float) -> bool:
        """True if the row has ended: the object holds, or is no longer desired."""
        if self.changed_at is not None:
            return now - self.seen_at > SEEN_S
        return now - self.applied_at >= self.settles_s


@dataclass(slots=True)
class Drift:
    """The restores of one service's objects. The clock is an argument."""

    _objects: dict[Key, Restores] = field(default_factory=dict)

    def changed(self, key: Key, desired: int, now: float) -> float:
        """An object is not as desired. Returns the earliest time at which it may be applied."""
        known = self._objects.get(key)
        if known is None or known.desired != desired:
            return now
        known = self._objects[key] = known.changed(now)
        return max(now, known.next_at)

    def wants_cause(self, key: Key) -> bool:
        """True once after each change that may be a conflict: its cause is to be looked for before the next apply."""
        known = self._objects.get(key)
        if known is None or known.changed_at is None or known.count < FREE - 1 or known.looked:
            return False
        self._objects[key] = replace(known, looked=True)
        return True

    def found(self, key: Key, conflict: FieldConflict) -> None:
        self._objects[key] = replace(self._objects[key], conflict=conflict)

    def is_rewritten(self, key: Key) -> bool:
        """True if the API server's answer to the last apply was not as desired."""
        known = self._objects.get(key)
        return known is not None and known.changed_at == known.applied_at

    def applied(self, key: Key, desired: int, now: float, holds: bool = True) -> None:
        known = self._objects.get(key, Restores(desired, now))
        self._objects[key] = known.applied(desired, now, holds)

    def held(self, key: Key, now: float) -> None:
        """An object is as desired."""
        if key in self._objects:
            self._objects[key] = replace(self._objects[key], changed_at=None)
            self._prune(now)

    def forget(self, key: Key) -> None:
        self._objects.pop(key, None)

    def conflicts(self, now: float) -> tuple[FieldConflict, ...]:
        """The conflicts that have not settled."""
        self._prune(now)
        found = (known.conflict for known in self._objects.values() if known.is_conflict)
        return tuple(conflict for conflict in found if conflict is not None)

    def pending_s(self, now: float) -> float | None:
        """Seconds until the first object that is not as desired may be applied again; None: all hold."""
        self._prune(now)
        times = [known.next_at for known in self._objects.values() if known.changed_at is not None]
        return max(0.0, min(times) - now) if times else None

    def settles_s(self, now: float) -> float | None:
        """Seconds until a conflict settles, unless its object is changed again; None: there is none."""
        self._prune(now)
        found = [known for known in self._objects.values() if known.is_conflict and known.changed_at is None]
        return min((known.applied_at + known.settles_s - now for known in found), default=None)

    def _prune(self, now: float) -> None:
        for key in [key for key, known in self._objects.items() if known.settled(now)]:
            del self._objects[key]
