"""What a stream keeps of its group between messages: the prompts that it was sent, and its credit."""

import pytest
from support.router.jobs import Recorder, job

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream
from octavo.router.dispatch.rules.prefix_memory import affinity_hashes
from octavo.router.internal_errors import InternalErrors


class Listener:
    """Counts the credits that it hears of."""

    def __init__(self) -> None:
        self.credits = 0

    def credited(self, _: object) -> None:
        self.credits += 1


def credit(seen: int, tokens: int, total_blocks: int | None) -> engine_pb2.FromEngine:
    load = None if total_blocks is None else engine_pb2.Load(total_blocks=total_blocks)
    return engine_pb2.FromEngine(credit=engine_pb2.Credit(seen=seen, tokens=tokens, load=load))


def opened() -> tuple[LeaderStream, InFlightJob]:
    """A stream with credit, on which a job of 200 tokens was sent."""
    stream = LeaderStream("a", engine_pb2.Welcome(block_size=16), Listener())  # type: ignore[arg-type]  # a fake
    stream.handle(credit(0, 1000, 100))
    one = job(prompt_tokens=200)
    sent = InFlightJob(one, Recorder(), affinity_hashes(one.prompt), InternalErrors())
    stream.submit(sent, 200)
    return stream, sent


@pytest.mark.parametrize("total_blocks", [100, None])
def test_the_prompts_that_a_group_was_sent_are_remembered_through_credits(total_blocks: int | None) -> None:
    stream, sent = opened()
    for turn in range(3):
        stream.handle(credit(1, 900 - turn, total_blocks))
        assert stream.prefixes.cached_tokens(sent.hashes) == 192


def test_a_group_with_another_cache_has_forgotten_them() -> None:
    stream, sent = opened()
    stream.handle(credit(1, 900, 101))
    assert stream.prefixes.cached_tokens(sent.hashes) == 0


def test_each_message_tells_the_listener_of_the_credit_once() -> None:
    stream, _ = opened()
    stream.handle(credit(1, 700, 100))
    assert stream.ledger.balance == 700 and stream._listener.credits == 2  # type: ignore[attr-defined]  # the fake's
