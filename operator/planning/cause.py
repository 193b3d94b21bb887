"""Cause of a failure, or of a wait that may pass without one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """reason: CamelCase; message: a sentence that names the object.

    failure_at: Unix time from which the cause counts as a failure. Before, the pod waits as it does in the ordinary
    course of things, e.g. for a node that a cluster autoscaler adds: the status shows the cause and raises no alarm.
    """

    reason: str
    message: str
    failure_at: float = float("-inf")
