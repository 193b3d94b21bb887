"""The policy chooses among the groups that have credit and have not refused the request."""

from collections.abc import Sequence

import pytest
from support.router.jobs import Recorder, job

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream
from octavo.router.dispatch.policies.candidate import Candidate
from octavo.router.dispatch.policies.registry import policy
from octavo.router.dispatch.select_group import select_group
from octavo.router.internal_errors import InternalErrors
from octavo.shared.policies import POLICIES


def stream(address: str, credit: int = 1000, last_sent: int = 0) -> LeaderStream:
    made = LeaderStream(address, engine_pb2.Welcome(), listener=None)  # type: ignore[arg-type]  # hears nothing here
    made.ledger.credit(0, credit)
    made.last_sent = last_sent
    return made


def in_flight(*avoid: str) -> InFlightJob:
    return InFlightJob(job(), Recorder(), [], InternalErrors(), avoid=set(avoid))


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_sends_to_a_group_without_credit_or_that_refused_the_request(name: str) -> None:
    streams = [stream("empty", credit=0), stream("a", last_sent=8), stream("refused"), stream("b", last_sent=9)]
    assert select_group(in_flight("refused"), streams, policy(name)) is streams[1]
    assert select_group(in_flight("refused", "a"), streams, policy(name)) is streams[3]
    assert select_group(in_flight(), streams[:1], policy(name)) is None


def test_the_policy_sees_when_each_group_got_its_last_request() -> None:
    seen: list[int] = []

    def last(prompt_tokens: int, candidates: Sequence[Candidate]) -> int:
        seen.extend(candidate.last_sent for candidate in candidates)
        return len(candidates) - 1

    streams = [stream("a", last_sent=5), stream("b", last_sent=7)]
    assert select_group(in_flight(), streams, last) is streams[1] and seen == [5, 7]
