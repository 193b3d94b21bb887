"""Every message survives the trip through bytes, and bytes that are no message are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.codec import VERSION, CodecError, Message, decode, encode
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel, Load, Output, Outputs, RefusedRequest, Scores
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Admit, Blocks, Forward, Masks, Sample, Scored, Step, StepResult

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
ids = st.lists(u32, max_size=40).map(tuple)
words = st.text(max_size=20)
floats = st.floats(-2, 2, width=32)
sampling = st.builds(
    SamplingParams, floats, u32, floats, u64, floats, floats, floats, floats,
    st.lists(st.tuples(u32, floats), max_size=5).map(tuple), ids, st.lists(ids, max_size=4).map(tuple), u32, ids,
    st.none() | u32, st.none() | u32,
) | st.builds(SamplingParams, floats, u32, floats, u64)  # fmt: skip
pieces = st.binary(max_size=20)
scores = st.none() | st.builds(Scores, pieces, pieces)
hashes = st.lists(st.binary(min_size=16, max_size=16), max_size=5).map(tuple)


def many(part: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(part, max_size=8).map(tuple)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    rows = draw(st.integers(0, 12))
    samples = draw(st.integers(0, rows))
    columns = [draw(st.lists(u32, min_size=size, max_size=size).map(tuple)) for size in (rows, rows, rows)]
    chosen = [draw(st.lists(u32, min_size=samples, max_size=samples).map(tuple)) for _ in range(2)]
    admits = draw(many(st.builds(Admit, u32, ids, sampling, u32)))
    blocks = draw(many(st.builds(Blocks, u32, u32, ids)))
    sample = Sample(*chosen, draw(many(st.builds(Scored, u32, u32, u32))), draw(ids))
    return Step(draw(u64), Forward(admits, blocks, *columns, draw(ids)), sample, draw(words), draw(words))


new_requests = st.builds(
    NewRequest, u64, ids, sampling, u32, st.frozensets(u32), ids, st.integers(-(2**31), 2**31 - 1), hashes,
    st.binary(max_size=64), words,
)  # fmt: skip


@st.composite
def outputs(draw: st.DrawFn) -> Outputs:
    plain = draw(many(st.tuples(u64, u32)))
    others = draw(many(st.builds(Output, u64, ids, st.sampled_from(Finish), u32, scores)))
    return Outputs(tuple(key for key, _ in plain), tuple(token for _, token in plain), others)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Sleep, st.booleans()),
    st.builds(Wake),
    st.builds(MemoryState, u32, st.booleans(), u64, words),
    steps(),
    st.builds(StepResult, u64, ids, ids, many(st.tuples(u32, pieces)), many(pieces)),
    new_requests,
    st.builds(Cancel, u64),
    outputs(),
    st.builds(Load, *[u64] * 10),
    st.builds(RefusedRequest, u64, words, words),
    st.builds(Masks, u64, st.binary(max_size=40)),
)


@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_a_message_cut_anywhere_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    with pytest.raises(CodecError, match="cut short"):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(messages, st.binary(min_size=1, max_size=9))
def test_a_message_with_something_after_it_is_refused(message: Message, more: bytes) -> None:
    with pytest.raises(CodecError, match="too many"):
        decode(encode(message) + more)


@given(st.binary(max_size=300), st.integers(0, 12))
def test_garbage_is_refused_or_is_exactly_a_message(garbage: bytes, kind: int) -> None:
    for data in (garbage, bytes((kind, VERSION)) + garbage):
        try:
            message = decode(data)
        except CodecError:
            continue
        assert decode(encode(message)) == message or message != message  # NaN is a float too


def test_another_version_is_refused_by_name() -> None:
    data = bytearray(encode(Cancel(3)))
    data[1] = 9
    with pytest.raises(CodecError, match="version 9, this process speaks 6"):
        decode(bytes(data))


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(CodecError, match="unknown kind 200"):
        decode(bytes((200, VERSION)))


def test_an_unknown_finish_is_refused() -> None:
    data = bytearray(encode(Outputs(others=(Output(1, (2,)),))))
    data[-1] = 77
    with pytest.raises(CodecError, match="unknown finish 77"):
        decode(bytes(data))


@pytest.mark.parametrize(
    "message",
    [
        StepResult(1, (-1,)),
        StepResult(1, (2**32,)),
        Cancel(-1),
        NewRequest(1, (1,), SamplingParams(), 1, hashes=(b"short",)),
        NewRequest(1, (1,), SamplingParams(top_k=-1), 1),
        NewRequest(1, (1,), SamplingParams(allowed_token_ids=(2**32,)), 1),
        Outputs((1, 2), (3,)),
    ],
)
def test_a_value_that_fits_no_field_is_refused(message: Message) -> None:
    with pytest.raises(CodecError):
        encode(message)


def test_sampling_parameters_pass_through_as_the_bytes_that_came() -> None:
    first = encode(NewRequest(1, (1,), SamplingParams(0.5, seed=9), 1))
    new = decode(first)
    assert isinstance(new, NewRequest)
    assert SamplingParams(0.5, seed=9).to_bytes() in encode(
        Step(1, Forward((Admit(0, (1,), new.sampling, 0),)), Sample())
    )


def test_sampling_parameters_of_another_version_are_refused() -> None:
    data = encode(NewRequest(1, (1,), SamplingParams(top_k=3), 1))
    for other in (b"\x88\x3e", b"\x15\x01"):  # a field without a number of ours, and one that is cut short
        with pytest.raises(CodecError, match="sampling"):
            decode(data.replace(b"\x10\x03", other))


@pytest.mark.parametrize("rows", [(0, 0), (1, 0), (2, 3)])
def test_scores_of_rows_that_are_not_there_are_refused(rows: tuple[int, int]) -> None:
    whole = encode(Outputs(others=(Output(1, (2,), scores=Scores(b"a")), Output(2, (3,), scores=Scores(b"b")))))
    data = bytearray(whole)
    for row, at in zip(rows, (len(whole) - 26, len(whole) - 13), strict=True):
        data[at : at + 4] = row.to_bytes(4, "little")
    with pytest.raises(CodecError, match="scores of entry"):
        decode(bytes(data))


def test_a_memoryview_of_a_ring_can_be_decoded() -> None:
    page = memoryview(bytearray(64))
    data = encode(Cancel(5))
    page[8 : 8 + len(data)] = data
    assert decode(page[8 : 8 + len(data)]) == Cancel(5)
