"""Which group a job goes to: of the groups that can serve it and have room, the policy's choice."""

from collections.abc import Sequence

from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream
from octavo.router.dispatch.policies.candidate import Candidate, Policy
from octavo.router.jobs.generation import Job


def unsupported_field(job: Job, usable: Sequence[LeaderStream]) -> str | None:
    """A field of the job that none of the groups can serve together with the others; None without groups."""
    if not job.needs or not usable or any(job.needs <= stream.features for stream in usable):
        return None
    return min(min(job.needs - stream.features) for stream in usable)


def select_group(in_flight: InFlightJob, usable: Sequence[LeaderStream], policy: Policy) -> LeaderStream | None:
    """None: no group has credit for it. usable: take requests for the model; policy: chooses among them."""
    needs = in_flight.job.needs
    if needs:
        usable = [stream for stream in usable if needs <= stream.features]
    if in_flight.avoid.issuperset(stream.address for stream in usable):
        in_flight.avoid.clear()
    open_ = [s for s in usable if s.ledger.balance > 0 and s.address not in in_flight.avoid]
    if len(open_) <= 1:
        return open_[0] if open_ else None
    return open_[policy(in_flight.job.prompt_tokens, [_candidate(stream, in_flight) for stream in open_])]


def _candidate(stream: LeaderStream, in_flight: InFlightJob) -> Candidate:
    return Candidate(
        pending_tokens=stream.load.prompt_tokens + stream.ledger.unseen_tokens,
        decoding=stream.load.running + stream.ledger.unseen,
        cached=stream.prefixes.cached_tokens(in_flight.hashes),
        last_cold=stream.last_cold,
        last_sent=stream.last_sent,
    )
