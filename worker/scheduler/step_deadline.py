"""When the oldest step under way is overdue: its rank is stuck, whatever else still looks alive. PURE.

A step occupies the device from its issue, or from the return of the one before it, whichever is later. It is overdue
after max(5 s, 10 x prediction).
"""

from collections import deque

FLOOR_S = 5.0
FACTOR = 10.0
_NS = 1e9


class StepDeadline:
    """Times are monotonic ns. Steps return in the order of their issue."""

    def __init__(self) -> None:
        self._in_flight: deque[tuple[int, float]] = deque()  # issued, prediction in seconds
        self._free_since = 0  # when the device last became free

    @property
    def deadline_ns(self) -> int:
        """0: nothing is under way."""
        if not self._in_flight:
            return 0
        issued, predicted_s = self._in_flight[0]
        return max(issued, self._free_since) + int(max(FLOOR_S, FACTOR * predicted_s) * _NS)

    def issued(self, now_ns: int, predicted_s: float) -> None:
        self._in_flight.append((now_ns, predicted_s))

    def returned(self, now_ns: int) -> int:
        """The oldest step came back; for how many ns it occupied the device."""
        issued, _ = self._in_flight.popleft()
        took = now_ns - max(issued, self._free_since)
        self._free_since = now_ns
        return took

    def idle_ns(self, now_ns: int) -> int:
        """For how long nothing has been under way; 0 while something is."""
        return 0 if self._in_flight else now_ns - self._free_since
