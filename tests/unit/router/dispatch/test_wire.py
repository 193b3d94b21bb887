"""What a router makes of a leader's bytes, and where it may speak without TLS."""

from array import array
from collections import deque

import pytest

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import wire
from octavo.router.dispatch.rules.loopback import check_loopback
from octavo.router.jobs.generation import Job
from octavo.shared.sampling_params import SamplingParams


def packed(*values: int) -> bytes:
    return array("I", values).tobytes()


def test_the_rows_of_a_step_keep_their_order() -> None:
    output = engine_pb2.StepOutput(
        numbers=packed(3, 1, 3), ids=packed(10, wire.NO_TOKEN, 11), finishes=bytes([0, 1, 2]), cached=packed(16, 0, 0)
    )
    assert wire.rows(output) == [(3, 10, 0, 16, None), (1, wire.NO_TOKEN, 1, 0, None), (3, 11, 2, 0, None)]


def test_first_tokens_go_out_before_the_rest_of_a_step() -> None:
    fresh = {7, 9}
    rows: list[wire.Row] = [(1, 10, 0, 0, None), (7, 11, 0, 0, None), (1, 12, 0, 0, None), (7, 13, 0, 0, None)]
    assert wire.first_rows_first(rows, fresh) == [rows[1], rows[3], rows[0], rows[2]]
    assert fresh == {9}
    assert wire.first_rows_first(rows, fresh) == rows


def test_scores_come_with_their_rows() -> None:
    output = engine_pb2.StepOutput(numbers=packed(3, 1, 3), ids=packed(10, 11, 12), finishes=bytes(3))
    output.scores.add(row=2, tokens=b"t", prompt=b"p")
    scores = [row[4] for row in wire.rows(output)]
    assert scores[:2] == [None, None] and scores[2] is not None and scores[2].tokens == b"t"
    output.scores.add(row=3)
    with pytest.raises(ValueError, match="row 3, of 3"):
        wire.rows(output)


def test_arrays_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        wire.rows(engine_pb2.StepOutput(numbers=packed(1, 2), ids=packed(1), finishes=b"\0\0"))


def test_a_job_arrives_as_it_was_sent() -> None:
    job = Job("r", packed(1, 2, 3), SamplingParams(0.5, 40, 0.75, 2**63), 17, (7, 8), True, -3)
    submit = engine_pb2.FromRouter.FromString(wire.submit(9, job).SerializeToString()).submit
    assert (submit.number, submit.prompt, submit.priority) == (9, packed(1, 2, 3), -3)
    assert (submit.limits.max_tokens, list(submit.limits.stop_ids), submit.limits.ignore_eos) == (17, [7, 8], True)
    assert SamplingParams.from_proto(submit.sampling) == SamplingParams(0.5, 40, 0.75, 2**63)
    assert not submit.sampling.HasField("logprobs")


def test_what_few_jobs_ask_arrives_too() -> None:
    sampling = SamplingParams(
        temperature=1.0, min_p=0.5, presence_penalty=1.5, frequency_penalty=-1.0, repetition_penalty=2.0,
        logit_bias=((7, -100.0), (9, 1.5)), allowed_token_ids=(1, 2), bad_words=((3,), (4, 5)), min_tokens=4,
        logprobs=0, prompt_logprobs=3,
    )  # fmt: skip
    job = Job("r", packed(1), sampling, 9, salt=b"s" * 32)
    submit = engine_pb2.FromRouter.FromString(wire.submit(1, job).SerializeToString()).submit
    assert SamplingParams.from_proto(submit.sampling) == sampling
    assert submit.sampling.HasField("logprobs") and submit.salt == b"s" * 32


@pytest.mark.parametrize("address", ["127.0.0.1:8500", "[::1]:8500", "localhost:8500", "127.8.8.8:1"])
def test_plaintext_is_allowed_on_this_machine(address: str) -> None:
    check_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1:8500", "[fd00::1]:8500", "chat-leaders:8500", "0.0.0.0:8500"])
def test_plaintext_to_another_machine_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="tls-dir"):
        check_loopback(address)


def test_messages_that_wait_together_are_sent_together_in_order() -> None:
    outbox = deque([wire.submit(n, Job("r", packed(1), SamplingParams(), 1)) for n in (1, 2)] + [wire.cancel(1)])
    sent = wire.bundle(outbox)
    assert sent.submit.number == 1
    assert [further.WhichOneof("kind") for further in sent.more] == ["submit", "cancel"]
    assert not outbox


def test_large_prompts_are_not_sent_together() -> None:
    large = packed(*range(60_000))
    outbox = deque(wire.submit(n, Job("r", large, SamplingParams(), 1)) for n in (1, 2))
    assert not wire.bundle(outbox).more
    assert len(outbox) == 1


def test_large_requests_are_not_sent_together() -> None:
    sampling = SamplingParams(allowed_token_ids=tuple(range(60_000)))
    outbox = deque(wire.submit(n, Job("r", packed(1), sampling, 1)) for n in (1, 2))
    assert not wire.bundle(outbox).more
    assert len(outbox) == 1
