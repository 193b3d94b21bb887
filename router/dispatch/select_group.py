"""Which group a job goes to: of the groups that can serve it and have room, the policy's choice."""

from collections.abc import Sequence

from octavo.router.dispatch.in_flight import Flight
from octavo.router.dispatch.policies.candidate import Candidate, Policy
from octavo.router.dispatch.stream import Stream
from octavo.router.jobs.generation import Job


def lacking(job: Job, usable: Sequence[Stream]) -> str | None:
    """A field of the job that none of the groups can serve together with the others; None without groups."""
    if not job.needs or not usable or any(job.needs <= stream.features for stream in usable):
        return None
    return min(min(job.needs - stream.features) for stream in usable)


def place(flight: Flight, usable: Sequence[Stream], policy: Policy) -> Stream | None:
    """None: no group has credit for it. usable: take requests for the model; policy: chooses among them."""
    needs = flight.job.needs
    if needs:
        usable = [stream for stream in usable if needs <= stream.features]
    if flight.avoid.issuperset(stream.address for stream in usable):
        flight.avoid.clear()
    open_ = [s for s in usable if s.ledger.balance > 0 and s.address not in flight.avoid]
    if len(open_) <= 1:
        return open_[0] if open_ else None
    return open_[policy(flight.job.prompt_tokens, [_candidate(stream, flight) for stream in open_])]


def _candidate(stream: Stream, flight: Flight) -> Candidate:
    return Candidate(
        pending_tokens=stream.load.prompt_tokens + stream.ledger.unseen_tokens,
        decoding=stream.load.running + stream.ledger.unseen,
        cached=stream.prefixes.cached_tokens(flight.hashes),
        last_cold=stream.last_cold,
        last_sent=stream.last_sent,
    )
