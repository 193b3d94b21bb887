"""When a job is given up: how often it may begin anew, which jobs may not, and which have waited too long."""

from octavo.router.dispatch.in_flight import Flight
from octavo.router.jobs import refusals
from octavo.router.jobs.counts import Counts
from octavo.router.jobs.generation import RequestError

MAX_ATTEMPTS = 4
MAX_LOST_INCARNATIONS = 2  # a request on which so many have died may be what kills them


def end_of_lost(flight: Flight, closed: bool, counts: Counts) -> RequestError | None:
    """Its stream is lost: what to tell the client; None: it may begin anew. closed: the router ends."""
    if not flight.can_restart():
        counts.cut += 1
        return refusals.cut(flight.produced)
    if closed:
        return refusals.draining()
    if len(flight.lost) >= MAX_LOST_INCARNATIONS:
        counts.poisoned += 1
        return refusals.poison(len(flight.lost))
    return None


def end_of_tries(flight: Flight, counts: Counts) -> RequestError | None:
    """What to tell the client when it has begun often enough."""
    if flight.attempts < MAX_ATTEMPTS:
        return None
    counts.worn_out += 1
    return refusals.worn_out(flight.attempts)


def end_of_wait(late: bool, waited_s: float, groups: int, retry_after_s: float, counts: Counts) -> RequestError:
    """What to tell the client of a job that left the queue. late: its own deadline has passed; else it just waited."""
    if late:
        counts.deadline_exceeded += 1
        return refusals.deadline(retry_after_s)
    counts.no_capacity += 1
    return refusals.no_capacity(waited_s, groups, retry_after_s)
