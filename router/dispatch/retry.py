"""When a job fails for good: after how many attempts, after how many lost groups, and after which wait."""

from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.jobs import refusals
from octavo.router.jobs.counts import Counts
from octavo.router.jobs.generation import RequestError

MAX_ATTEMPTS = 4
MAX_LOST_INCARNATIONS = 2  # a request whose groups failed that often may be the cause


def error_of_lost_stream(in_flight: InFlightJob, closed: bool, counts: Counts) -> RequestError | None:
    """The error of a job whose stream is lost; None: it can be sent again. closed: the router shuts down."""
    if not in_flight.can_restart():
        counts.cut += 1
        return refusals.cut(in_flight.produced)
    if closed:
        return refusals.draining()
    if len(in_flight.lost) >= MAX_LOST_INCARNATIONS:
        counts.poisoned += 1
        return refusals.poison(len(in_flight.lost))
    return None


def error_of_attempts(in_flight: InFlightJob, counts: Counts) -> RequestError | None:
    """The error of a job after MAX_ATTEMPTS; None: it can be sent again."""
    if in_flight.attempts < MAX_ATTEMPTS:
        return None
    counts.worn_out += 1
    return refusals.worn_out(in_flight.attempts)


def error_of_expiry(late: bool, waited_s: float, groups: int, retry_after_s: float, counts: Counts) -> RequestError:
    """The error of a job that expired in the queue. late: its own deadline has passed, not the queue's bound."""
    if late:
        counts.deadline_exceeded += 1
        return refusals.deadline(retry_after_s)
    counts.no_capacity += 1
    return refusals.no_capacity(waited_s, groups, retry_after_s)
