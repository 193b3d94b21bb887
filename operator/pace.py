"""Pace: bounds how often something happens for each key, however often it is asked for."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pace:
    """A token bucket for each key: `burst` at once, then one each `interval_s` seconds. The clock is an argument."""

    burst: int
    interval_s: float
    _full_at: OrderedDict[Hashable, float] = field(default_factory=OrderedDict)  # when the key's bucket is full again

    def next_at(self, key: Hashable, now: float) -> float:
        """The earliest time from `now` on at which the key has a token."""
        return max(now, self._full_at.get(key, now) - (self.burst - 1) * self.interval_s)

    def take(self, key: Hashable, now: float) -> None:
        """Use a token of the key; the caller has waited until `next_at`."""
        self._full_at[key] = max(now, self._full_at.get(key, now)) + self.interval_s
        self._full_at.move_to_end(key)
        while self._full_at[oldest := next(iter(self._full_at))] <= now:
            del self._full_at[oldest]
