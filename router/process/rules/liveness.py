"""When a router process counts as dead although it still exists: it is stopped, or its event loop hangs.

PURE: it judges what the parent saw. A parent that was itself held up (a frozen container, a starved machine) judges
no process before it has watched for as long as a process may be silent, because then the answers wait unread.
"""

from dataclasses import dataclass

SILENCE_S = 6.0  # without an answer to a question
STARTING_S = 120.0  # from the start to the first answer: imports, on a machine that has other work
LATE_LOOK_S = 3.0  # between two looks that follow an unanswered question; normally 1 s


@dataclass(frozen=True, slots=True)
class ProcessLiveness:
    """Liveness of one process since its start. Times are monotonic seconds.

    asked_s: of the first question since the last answer. heard: whether it has ever answered.
    """

    asked_s: float
    look_s: float
    heard: bool = False

    def answered(self, now_s: float) -> "ProcessLiveness":
        """The next question comes later: until then there is nothing to judge."""
        return ProcessLiveness(now_s, now_s, heard=True)

    def asked(self, now_s: float) -> "ProcessLiveness":
        """A question after an answer begins the time to judge."""
        return ProcessLiveness(now_s, now_s, self.heard)

    def unanswered(self, now_s: float) -> "ProcessLiveness":
        """After a look that found no answer. A late look restarts the time."""
        late = now_s - self.look_s > LATE_LOOK_S
        return ProcessLiveness(now_s if late else self.asked_s, now_s, self.heard)

    @property
    def verdict(self) -> str | None:
        """Why it must be killed."""
        silent_s = self.look_s - self.asked_s
        if silent_s <= (SILENCE_S if self.heard else STARTING_S):
            return None
        return f"has not answered its parent for {silent_s:.0f} s: it is stopped, or hangs"
