"""When a process or a pod that still exists counts as lost. One rule for all judges:

    silent  <=>  now - max(last sign, present since) > bound

A judge that was itself held up (a frozen container, a starved machine) sees old signs only, since the new ones wait
unread: after a late check it is present again, and finds nothing silent before it has watched for the bound. What is
starting has a longer bound, since imports and large files may take their time.
PURE. Times are seconds of one monotonic clock.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds. silence_s: without a sign. starting_s: the same, until it has started. late_check_s: between two checks
    of a judge that was not held up."""

    silence_s: float
    late_check_s: float
    starting_s: float = 120.0


WORKER = Bounds(5.0, 2.0)  # processes and pods: heartbeats twice a second; checks twice or four times a second
ROUTER = Bounds(6.0, 3.0)  # processes: answers to questions; checks each second


@dataclass(frozen=True, slots=True)
class Presence:
    """A judge's own presence. checked_s: its last check; since_s: the check after its last absence."""

    checked_s: float = math.inf
    since_s: float = -math.inf

    def checked(self, now_s: float, bounds: Bounds) -> "Presence":
        """After a check."""
        late = now_s - self.checked_s > bounds.late_check_s
        return Presence(now_s, now_s if late else self.since_s)

    def silence_s(self, sign_s: float, now_s: float) -> float:
        """Seconds of silence since the last sign, as far as they may be judged."""
        return now_s - max(sign_s, self.since_s)

    def is_silent(self, sign_s: float, now_s: float, bound_s: float) -> bool:
        """Whether it has been silent for longer than the bound."""
        return self.silence_s(sign_s, now_s) > bound_s
