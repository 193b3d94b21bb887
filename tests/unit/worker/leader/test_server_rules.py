"""What serve makes of a router's submit, and how it packs what goes back."""

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.proto.v1 import engine_pb2
from octavo.shared.hashing import block_hashes
from octavo.worker.leader.admission.submit import Rules, read_submit
from octavo.worker.leader.output_buffer import NO_TOKEN, OutputBuffer
from octavo.worker.leader.router_stream import BOUND_BYTES, BOUND_S, RouterStream
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish, Invalid

RULES = Rules(vocabulary=100, context_length=64, block_size=16, eos_ids=frozenset({7}), prefix_caching=True)


def _submit(prompt=(1, 2, 3), max_tokens=4, generated=(), ignore_eos=False, **sampling):
    return engine_pb2.Submit(
        number=1,
        prompt=array.array("I", prompt).tobytes(),
        generated=array.array("I", generated).tobytes(),
        sampling=engine_pb2.SamplingParams(**sampling),
        limits=engine_pb2.Limits(max_tokens=max_tokens, stop_ids=[9], ignore_eos=ignore_eos),
    )


def test_a_submit_becomes_the_request_it_describes():
    new = read_submit(_submit(prompt=range(20), generated=(5,), temperature=0.5, top_k=3, top_p=0.5, seed=4), 8, RULES)
    assert (new.key, new.prompt, new.generated, new.max_tokens) == (8, tuple(range(20)), (5,), 4)
    assert (new.sampling.temperature, new.sampling.top_k, new.sampling.top_p, new.sampling.seed) == (0.5, 3, 0.5, 4)
    assert new.stop_ids == {7, 9}
    assert list(new.hashes) == block_hashes(array.array("I", [*range(20), 5]).tobytes())


def test_end_of_sequence_ids_do_not_stop_a_request_that_ignores_them():
    assert read_submit(_submit(ignore_eos=True), 1, RULES).stop_ids == {9}


@pytest.mark.parametrize(
    ("submit", "field"),
    [
        (_submit(prompt=()), "prompt"),
        (_submit(prompt=(100,)), "prompt"),
        (_submit(prompt=[1] * 64), "prompt"),
        (engine_pb2.Submit(prompt=b"abc", limits=engine_pb2.Limits(max_tokens=1)), "prompt"),
        (_submit(generated=(4000,)), "generated"),
        (_submit(max_tokens=0), "max_tokens"),
        (_submit(temperature=-0.1), "temperature"),
        (_submit(temperature=float("inf")), "temperature"),
        (_submit(top_p=1.01), "top_p"),
        (_submit(top_p=float("nan")), "top_p"),
    ],
)
def test_what_is_wrong_is_named_by_field(submit, field):
    with pytest.raises(Invalid) as refusal:
        read_submit(submit, 1, RULES)
    assert refusal.value.field == field


_OUTPUT = st.tuples(
    st.integers(1, 9), st.lists(st.integers(0, 99), max_size=3), st.sampled_from(Finish), st.integers(0, 50)
)


@given(st.lists(st.lists(_OUTPUT, max_size=5), max_size=5))
def test_merged_steps_hold_every_row_in_order(steps):
    out = OutputBuffer()
    expected = []
    for step in steps:
        for number, ids, finish, cached in step:
            out.add(number, Output(0, tuple(ids), finish, cached))
            shown = ids or [NO_TOKEN]
            expected += [
                (number, token, int(finish) if last else 0, cached if first else 0)
                for token, first, last in zip(
                    shown, [True] + [False] * 9, [False] * (len(shown) - 1) + [True], strict=False
                )
            ]
    message = out.take(engine_pb2.Credit(seen=3))
    if not expected:
        assert message is None
        return
    output = message.output
    columns = [array.array("I", part) for part in (output.numbers, output.ids, output.cached)]
    assert list(zip(columns[0], columns[1], output.finishes, columns[2], strict=True)) == expected
    assert message.credit.seen == 3
    assert out.empty


def test_everything_that_waits_is_said_one_message_at_a_time_with_the_credit():
    out = OutputBuffer()
    out.draining = out.credit = True
    out.add(1, Output(1, (5,)))
    out.reject(engine_pb2.Rejected(number=2))
    kinds = []
    while (message := out.take(engine_pb2.Credit(seen=1))) is not None:
        assert message.HasField("credit")
        kinds.append(message.WhichOneof("kind"))
    assert kinds == ["draining", "output", "rejected"]
    out.credit = True
    assert out.take(engine_pb2.Credit(seen=1)).WhichOneof("kind") is None


def test_a_reader_is_cut_at_4_mib_or_10_s_and_not_before():
    stream = RouterStream("router")
    now = stream.heard_s
    assert stream.overrun(now + BOUND_S) is None
    assert "heard" in (stream.overrun(now + BOUND_S + 0.1) or "")
    stream.begin(1, 1)
    while stream.out.size_bytes <= BOUND_BYTES:
        assert stream.overrun(now) is None
        stream.deliver(Output(1, (3,) * 5000))
    assert "wait" in (stream.overrun(now) or "")
