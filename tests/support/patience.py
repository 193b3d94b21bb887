"""How long tests wait: for what must come, long enough on any machine; for what is promised in seconds, that long.

A machine that has fewer CPUs than it has work keeps everybody waiting, and no promise is about that. The kernel counts
the time in which a process was ready and had no CPU (PSI); it does not count as a promise's seconds.
"""

import time
import warnings
from pathlib import Path

PATIENCE_S = 100.0  # no promise: a longer wait is in vain
_PRESSURE = Path("/proc/pressure/cpu")


class SlowMachine(UserWarning):
    """A promise was kept only because the seconds in which the machine was too busy do not count."""


def calm_s() -> float:
    """A clock that stands still while anything on this machine waits for a CPU; everywhere else it is monotonic."""
    now_s = time.monotonic()
    try:
        first = _PRESSURE.read_text().partition("\n")[0]
    except OSError:  # a kernel without PSI
        return now_s
    return now_s - int(first.rpartition("total=")[2]) / 1e6


class Bound:
    """`seconds` from now, on a calm clock; by any clock never more than PATIENCE_S longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began_s, self._calm_s = time.monotonic(), calm_s()

    @property
    def took_s(self) -> float:
        """By any clock."""
        return time.monotonic() - self._began_s

    @property
    def over(self) -> bool:
        took_s = self.took_s
        return took_s > self.seconds and (calm_s() - self._calm_s > self.seconds or took_s > self.seconds + PATIENCE_S)

    def kept(self) -> float:
        """What was waited for is there: the seconds it took."""
        if (took_s := self.took_s) > self.seconds:
            warnings.warn(SlowMachine(f"{took_s:.1f} s where {self.seconds:.0f} s are the bound"), stacklevel=3)
        return took_s

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.took_s:.1f} s, {calm_s() - self._calm_s:.1f} s of them calm)"
