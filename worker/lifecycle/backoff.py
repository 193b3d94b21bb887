"""How long a pod waits between two incarnations: 0.2 s, doubling to 10 s; forgotten after 60 good seconds. PURE."""

from dataclasses import dataclass

FIRST_S = 0.2
LAST_S = 10.0
GOOD_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """next_s: what the next failure costs."""

    next_s: float = FIRST_S

    def after(self, served_s: float) -> tuple[float, "Backoff"]:
        """(seconds to wait, the back-off after that), for an incarnation that failed after `served_s` of serving."""
        wait = FIRST_S if served_s >= GOOD_S else self.next_s
        return wait, Backoff(min(2 * wait, LAST_S))
