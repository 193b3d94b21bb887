"""When a router process counts as dead although it still exists: it is stopped, or its event loop hangs.

PURE: it judges what the parent saw, by the rule of octavo.shared.liveness. Answers are the signs; there is nothing to
judge between an answer and the next question, and no look that could be late.
"""

from dataclasses import dataclass

from octavo.shared.liveness import ROUTER, Presence


@dataclass(frozen=True, slots=True)
class ProcessLiveness:
    """Liveness of one process since its start. Times are monotonic seconds.

    asked_s: of the first question since the last answer. presence: of the parent since then. heard: whether it has
    ever answered.
    """

    asked_s: float
    presence: Presence
    heard: bool = False

    @staticmethod
    def begun(now_s: float) -> "ProcessLiveness":
        """A process that starts now."""
        return ProcessLiveness(now_s, Presence(now_s))

    def answered(self, now_s: float) -> "ProcessLiveness":
        """The next question comes later: until then there is nothing to judge."""
        return ProcessLiveness(now_s, Presence(now_s), heard=True)

    def asked(self, now_s: float) -> "ProcessLiveness":
        """A question after an answer begins the time to judge."""
        return ProcessLiveness(now_s, Presence(now_s), self.heard)

    def unanswered(self, now_s: float) -> "ProcessLiveness":
        """After a look that found no answer."""
        return ProcessLiveness(self.asked_s, self.presence.checked(now_s, ROUTER), self.heard)

    @property
    def verdict(self) -> str | None:
        """Why it must be killed."""
        look_s = self.presence.checked_s
        if not self.presence.is_silent(self.asked_s, look_s, ROUTER.silence_s if self.heard else ROUTER.starting_s):
            return None
        silence_s = self.presence.silence_s(self.asked_s, look_s)
        return f"has not answered its parent for {silence_s:.0f} s: it is stopped, or hangs"
