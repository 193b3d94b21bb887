"""Counts of jobs by outcome, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    retried: int = 0
    cut: int = 0
    poisoned: int = 0
    worn_out: int = 0
    rejected: int = 0
    queue_full: int = 0
    no_capacity: int = 0
    deadline_exceeded: int = 0
    model_changed: int = 0
