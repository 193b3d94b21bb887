"""Sampling parameters are the same on both ends of every wire, whatever their values."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.proto.v1 import engine_pb2
from octavo.shared.sampling_params import (
    FEATURES,
    LOGITS_FIELDS,
    RANGES,
    InvalidSamplingParams,
    SamplingParams,
)

u32 = st.integers(0, 2**32 - 1)
floats = st.floats(width=32, allow_nan=False)
ids = st.lists(u32, max_size=9).map(tuple)
top = st.none() | u32
VALUES = {
    "temperature": floats,
    "top_k": u32,
    "top_p": floats,
    "seed": st.integers(0, 2**64 - 1),
    "min_p": floats,
    "presence_penalty": floats,
    "frequency_penalty": floats,
    "repetition_penalty": floats,
    "logit_bias": st.lists(st.tuples(u32, floats), max_size=9).map(tuple),
    "allowed_token_ids": ids,
    "bad_words": st.lists(ids, max_size=5).map(tuple),
    "min_tokens": u32,
    "forbidden": ids,
    "logprobs": top,
    "prompt_logprobs": top,
}
NAMES = [one.name for one in fields(SamplingParams)]
# Of each field a value that is not its default.
OTHER = SamplingParams(
    0.5, 40, 0.75, 2**63, 0.25, -2.0, 2.0, 1.5, ((7, -100.0), (0, 0.5)), (3, 1), ((5,), (6, 7)), 4, (2,), 0, 20
)
params = st.builds(SamplingParams, **VALUES)


@given(params)
def test_every_field_survives_the_message_and_its_bytes(one: SamplingParams) -> None:
    assert SamplingParams.from_proto(one.to_proto()) == one
    assert SamplingParams.from_bytes(one.to_bytes()) == one


@given(params)
def test_equal_parameters_have_the_same_bytes_however_they_came(one: SamplingParams) -> None:
    data = one.to_bytes()
    assert replace(one).to_bytes() == data
    assert SamplingParams.from_proto(engine_pb2.SamplingParams.FromString(data)).to_bytes() == data
    assert SamplingParams.from_bytes(data).to_bytes() == data


def test_a_changed_copy_has_bytes_of_its_own() -> None:
    before = SamplingParams(seed=1)
    before.to_bytes()
    assert SamplingParams.from_bytes(replace(before, seed=2).to_bytes()).seed == 2
    assert SamplingParams.from_bytes(replace(SamplingParams.from_bytes(before.to_bytes()), seed=3).to_bytes()).seed == 3


def test_the_message_has_these_fields_and_no_others() -> None:
    assert {one.name for one in engine_pb2.SamplingParams.DESCRIPTOR.fields} == set(NAMES) == set(VALUES)


@pytest.mark.parametrize("name", NAMES)
def test_one_field_alone_survives(name: str) -> None:
    one = replace(SamplingParams(), **{name: getattr(OTHER, name)})
    assert one != SamplingParams()
    assert SamplingParams.from_bytes(one.to_bytes()) == one


def test_what_changes_nothing_costs_no_byte() -> None:
    assert SamplingParams().to_bytes() == b""
    assert SamplingParams.from_bytes(b"") == SamplingParams()


@pytest.mark.parametrize("name", NAMES)
def test_a_request_needs_the_feature_of_each_field_that_it_sets(name: str) -> None:
    one = replace(SamplingParams(), **{name: getattr(OTHER, name)})
    assert one.features == ((name,) if name in FEATURES else ())
    assert one.always_changes_logits == one.changes_logits == (name in LOGITS_FIELDS)


def test_features_and_ranges_come_from_the_fields() -> None:
    assert OTHER.features == FEATURES
    assert set(NAMES) - set(FEATURES) == {"temperature", "top_k", "top_p", "seed", "forbidden"}
    assert RANGES.keys() <= {"temperature", *FEATURES} and RANGES["presence_penalty"] == (-2, 2)


def test_what_is_shown_is_what_was_set() -> None:
    assert repr(SamplingParams(0.5, bad_words=((1,),))) == "SamplingParams(temperature=0.5, bad_words=((1,),))"
    assert eval(repr(OTHER)) == OTHER


def test_ids_that_end_are_forbidden_only_where_a_number_of_tokens_is_asked() -> None:
    assert not replace(SamplingParams(), forbidden=(2,)).changes_logits
    waiting = SamplingParams(min_tokens=3, forbidden=(2,))
    assert waiting.changes_logits and not waiting.always_changes_logits


@pytest.mark.parametrize(
    "change",
    [
        {"top_k": -1}, {"top_k": 2**32}, {"seed": 2**64}, {"seed": -1}, {"logprobs": -1}, {"min_tokens": 2**32},
        {"allowed_token_ids": (2**32,)}, {"bad_words": ((1,), (-1,))}, {"logit_bias": ((-1, 1.0),)}, {"top_p": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_fits_no_field_is_refused(change: dict) -> None:
    with pytest.raises(InvalidSamplingParams, match="does not fit"):
        replace(SamplingParams(), **change).to_bytes()


@pytest.mark.parametrize("name", ["logit_bias", "allowed_token_ids", "forbidden"])
def test_a_list_that_is_cut_is_refused_by_its_field(name: str) -> None:
    with pytest.raises(InvalidSamplingParams, match="whole number") as caught:
        SamplingParams.from_proto(engine_pb2.SamplingParams(**{name: bytes(7)}))
    assert caught.value.field == name


@given(st.binary(max_size=40))
def test_garbage_is_refused_or_stays_as_it_is(garbage: bytes) -> None:
    try:
        one = SamplingParams.from_bytes(garbage)
    except InvalidSamplingParams:
        return
    assert one.to_bytes() == garbage


def test_an_unknown_field_is_refused_in_bytes_and_passed_over_in_a_message() -> None:
    newer = OTHER.to_bytes() + b"\xa0\x06\x01"  # field 100
    with pytest.raises(InvalidSamplingParams, match="unknown field number 100"):
        SamplingParams.from_bytes(newer)
    assert SamplingParams.from_proto(engine_pb2.SamplingParams.FromString(newer)) == OTHER


def test_logs_show_what_differs_from_the_defaults_in_words() -> None:
    assert SamplingParams().changes == "none"
    assert SamplingParams(temperature=0.6, top_p=0.9).changes == "temperature 0.6, top_p 0.9"
