"""The error of a start, apart from what reports it: gRPC takes a while to import."""

from octavo.errors import OctavoError
from octavo.shared.failure_reasons import FailureReason


class StartFailed(OctavoError):
    """A group failed for a reason that a restart cannot fix; the message has the reason. code: exit code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.code = 2 if reason == FailureReason.CONFIG_INVALID else 1
