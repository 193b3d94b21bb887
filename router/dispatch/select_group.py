"""Which group a job goes to: of the groups that can serve it and have room, the policy's choice."""

from collections.abc import Sequence

from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream
from octavo.router.dispatch.policies.candidate import Candidate, Policy
from octavo.router.jobs import refusals
from octavo.router.jobs.generation import Job, RequestError


def unservable(job: Job, usable: Sequence[LeaderStream]) -> RequestError | None:
    """The error of a job that none of the groups can serve; None without groups. usable: of its model."""
    for stream in usable:
        if _serves(stream, job):
            return None
    if not usable:
        return None
    capable = [stream for stream in usable if job.needs <= stream.features]
    if not capable:
        return refusals.unsupported_field(job.client_field(min(min(job.needs - stream.features) for stream in usable)))
    return refusals.context_exceeded(job.min_context, max(stream.context_length for stream in capable))


def select_group(in_flight: InFlightJob, usable: Sequence[LeaderStream], policy: Policy) -> LeaderStream | None:
    """None: no group has credit for it. usable: take requests for the model; policy: chooses among them."""
    if len(usable) == 1:
        (stream,) = usable
        in_flight.avoid.discard(stream.address)
        return stream if stream.ledger.balance > 0 and _serves(stream, in_flight.job) else None
    usable = [stream for stream in usable if _serves(stream, in_flight.job)]
    if in_flight.avoid.issuperset(stream.address for stream in usable):
        in_flight.avoid.clear()
    open_ = [s for s in usable if s.ledger.balance > 0 and s.address not in in_flight.avoid]
    if len(open_) <= 1:
        return open_[0] if open_ else None
    return open_[policy(in_flight.job.prompt_tokens, [_candidate(stream, in_flight) for stream in open_])]


def _serves(stream: LeaderStream, job: Job) -> bool:
    """Whether the group's device and context suffice."""
    return job.min_context <= stream.context_length and job.needs <= stream.features


def _candidate(stream: LeaderStream, in_flight: InFlightJob) -> Candidate:
    return Candidate(
        pending_tokens=stream.load.prompt_tokens + stream.ledger.unseen_tokens,
        decoding=stream.load.running + stream.ledger.unseen,
        cached=stream.prefixes.cached_tokens(in_flight.hashes),
        last_cold=stream.last_cold,
        last_sent=stream.last_sent,
    )
