"""A message and the JSON body that asks the same are judged the same."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.router.grpc_calls import message_of

from octavo.proto.v1 import octavo_pb2
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.grpc_fields import MAX_DETOKENISED, detokenize_ids
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.options import PLAIN
from octavo.router.openai_api.structured import Structured
from octavo.router.text.bodies import read
from octavo.shared.sampling_params import SamplingParams

Json = dict[str, Any]  # Any: JSON
HELLO = octavo_pb2.Prompt(text="hello")
HELLO_REQUEST = octavo_pb2.GenerateRequest(prompt=[HELLO]).SerializeToString()


def generate(message: octavo_pb2.GenerateRequest | bytes) -> ParsedRequest:
    return read("generate", message if isinstance(message, bytes) else message.SerializeToString())


def verdict(form: str, body: bytes) -> ParsedRequest | tuple[int, str, str | None]:
    try:
        return read(form, body)  # type: ignore[arg-type]  # all forms
    except RequestError as error:
        return error.status, error.code, error.field


def _field(number: int, inner: bytes) -> bytes:
    """As protobuf writes a message within a message."""
    return bytes([number << 3 | 2, len(inner)]) + inner


def both(body: Json) -> tuple[object, object]:
    """HTTP's verdict and gRPC's."""
    kind = "chat" if body.get("messages") else "completion"
    return verdict(kind, json.dumps(body).encode()), verdict("generate", message_of(body).SerializeToString())


def test_every_field_arrives() -> None:
    request = octavo_pb2.GenerateRequest(
        model="m",
        prompt=[HELLO],
        max_tokens=5,
        sampling=octavo_pb2.SamplingParameters(temperature=0.0, top_p=0.5, top_k=-1, seed=-3),
        stop=["END"],
        stop_token_ids=[7],
        ignore_eos=True,
        n=3,
        truncate_prompt_tokens=9,
        cache_salt="salt",
        priority=-2,
    )
    ask = generate(request)
    options, plain = ask.options, replace(ask, options=PLAIN)
    drawn, given = SamplingParams(0.0, 0, 0.5, 2**64 - 3), ("temperature", "top_p", "top_k", "seed")
    assert plain == ParsedRequest("completion", "m", ("hello",), (), 5, drawn, given, ("END",), (7,), True)
    assert (options.n, options.truncate, options.priority) == (3, 9, -2)
    salted = verdict("completion", b'{"prompt": "hello", "cache_salt": "salt"}')
    assert isinstance(salted, ParsedRequest) and salted.options.salt == options.salt != ""
    assert {field.name for field, _ in request.ListFields()} == set(request.DESCRIPTOR.fields_by_name) - {"messages"}
    sampling = octavo_pb2.SamplingParameters(
        min_p=0.1, presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.5, guided_regex="[a-z]+"
    )
    params = generate(octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=sampling))
    assert params.sampling == SamplingParams(
        min_p=0.1, presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.5
    )
    assert params.structured == Structured("regex", "[a-z]+", "guided_regex")
    ids = octavo_pb2.SamplingParameters(logit_bias={5: -1.5}, allowed_token_ids=[5, 6], bad_words=["no"])
    steered = {"prompt": "hello", "logit_bias": {"5": -1.5}, "allowed_token_ids": [5, 6], "bad_words": ["no"]}
    asked = generate(octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=ids))
    assert asked == verdict("completion", json.dumps(steered).encode())
    choice = octavo_pb2.SamplingParameters(guided_choice=["yes", "no"])
    assert generate(octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=choice)) == verdict(
        "completion", b'{"prompt": "hello", "guided_choice": ["yes", "no"]}'
    )
    fewest = octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=octavo_pb2.SamplingParameters(min_tokens=3))
    assert generate(fewest).sampling.min_tokens == 3


def test_what_is_absent_is_absent_and_zero_is_a_value() -> None:
    assert generate(octavo_pb2.GenerateRequest(prompt=[HELLO])) == ParsedRequest("completion", None, ("hello",))
    greedy = octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=octavo_pb2.SamplingParameters(temperature=0.0))
    assert (generate(greedy).sampling.temperature, generate(greedy).given) == (0.0, ("temperature",))


def test_a_prompt_may_be_text_or_ids_or_several() -> None:
    ids = octavo_pb2.Prompt(token_ids=octavo_pb2.TokenIds(ids=[1, 2]))
    assert generate(octavo_pb2.GenerateRequest(prompt=[ids])).prompts == ([1, 2],)
    assert generate(octavo_pb2.GenerateRequest(prompt=[HELLO, ids, HELLO])).prompts == ("hello", [1, 2], "hello")


def test_messages_make_a_chat() -> None:
    messages = [octavo_pb2.Message(role="user", content="hi", name="me"), octavo_pb2.Message(role="assistant")]
    ask = generate(octavo_pb2.GenerateRequest(messages=messages))
    assert ask.kind == "chat" and [(m.role, m.content, m.name) for m in ask.messages] == [
        ("user", "hi", "me"),
        ("assistant", "", None),
    ]


HTTP_TABLE: list[tuple[Json, str]] = [
    ({}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[1], []]}, "prompt[1]"),
    ({"prompt": [2**32 - 1]}, "prompt"),
    ({"prompt": ["x"] * 257}, "prompt"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "x", "max_tokens": -1}, "max_tokens"),
    ({"prompt": "x", "temperature": -0.1}, "temperature"),
    ({"prompt": "x", "temperature": 2.1}, "temperature"),
    ({"prompt": "x", "top_p": 0}, "top_p"),
    ({"prompt": "x", "top_p": 1.1}, "top_p"),
    ({"prompt": "x", "top_k": -2}, "top_k"),
    ({"prompt": "x", "stop": [""]}, "stop"),
    ({"prompt": "x", "stop": ["x"] * 17}, "stop"),
    ({"prompt": "x", "stop": "x" * 257}, "stop"),
    ({"prompt": "x", "stop_token_ids": [2**32 - 1]}, "stop_token_ids"),
    ({"prompt": "x", "stop_token_ids": [1] * 65}, "stop_token_ids"),
    ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x"}, {"content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x"}], "prompt": "x"}, "prompt"),
    ({"messages": [{"role": "user", "content": "x"}] * 10_001}, "messages"),
]


@pytest.mark.parametrize(("body", "field"), HTTP_TABLE)
def test_a_bad_message_is_refused_as_the_bad_body_is(body: Json, field: str) -> None:
    http, grpc = both(body)
    assert http == grpc and isinstance(http, tuple) and http[2] == field


def number(low: int, high: int) -> st.SearchStrategy[int]:
    """Any that the field can hold, and often one near a bound."""
    return st.one_of(st.integers(low, high), st.integers(-3, 3), st.sampled_from([low, high]))


TEXT = st.text(max_size=5)
IDS = st.lists(st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**32 - 2, 2**32 - 1])), max_size=4)
PROMPT = st.one_of(TEXT, IDS, st.lists(st.one_of(TEXT, IDS), min_size=2, max_size=4))
MESSAGE = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(["user", "system", "developer", "assistant", "tool", "", "boss"]), TEXT)},
    optional={"content": TEXT, "name": TEXT},
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "model": TEXT,
        "prompt": PROMPT,
        "messages": st.lists(MESSAGE, max_size=3),
        "max_tokens": number(-(2**31), 2**31 - 1),
        "temperature": st.one_of(st.floats(-3, 3), st.sampled_from([0, 2, 2.0000001, -1e-12])),
        "top_p": st.one_of(st.floats(-1, 2), st.sampled_from([0, 1, 1.0000001])),
        "top_k": number(-(2**31), 2**31 - 1),
        "seed": number(-(2**63), 2**63 - 1),
        "stop": st.one_of(TEXT, st.lists(TEXT, max_size=18)),
        "stop_token_ids": IDS,
        "ignore_eos": st.booleans(),
    },
)


@settings(max_examples=300)
@given(BODIES)
def test_any_body_that_a_message_can_say_has_one_verdict(body: Json) -> None:
    if body.get("messages") == []:
        del body["messages"]  # which a message cannot tell from none
    http, grpc = both(body)
    assert http == grpc


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_error_of_the_client(data: bytes) -> None:
    for form in ("generate", "tokenize"):
        found = verdict(form, data)
        assert isinstance(found, ParsedRequest) or found[0] == 400


def test_a_field_of_a_newer_client_is_refused_and_named_by_its_number() -> None:
    newer = b"\x90\x4d\x01"  # field 1234, varint 1
    places = {
        "1234": HELLO_REQUEST + newer,
        "sampling.1234": HELLO_REQUEST + _field(5, newer),
        "prompt[0].1234": _field(2, HELLO.SerializeToString() + newer),
        "messages[0].1234": _field(3, b"\x0a\x04user\x12\x01x" + newer),
    }
    for field, data in places.items():
        assert verdict("generate", data) == (400, "unsupported_field", field)


def test_text_that_is_not_unicode_is_a_clear_400() -> None:
    with pytest.raises(RequestError) as caught:
        generate(_field(2, b"\x0a\x02\xff\xfe"))
    assert caught.value.code == "invalid_message" and "GenerateRequest" in caught.value.message


def test_not_a_number_is_out_of_bounds() -> None:
    for value in (float("nan"), float("inf")):
        sampling = octavo_pb2.SamplingParameters(temperature=value)
        data = octavo_pb2.GenerateRequest(prompt=[HELLO], sampling=sampling).SerializeToString()
        assert verdict("generate", data) == (400, "invalid_value", "temperature")


def test_one_prompt_is_tokenised_in_a_call() -> None:
    data = octavo_pb2.TokenizeRequest(prompt=[HELLO, HELLO]).SerializeToString()
    assert verdict("tokenize", data) == (400, "invalid_value", "prompt")


def test_too_many_ids_to_detokenise_are_refused() -> None:
    many = octavo_pb2.DetokenizeRequest(token_ids=[1] * (MAX_DETOKENISED + 1))
    with pytest.raises(RequestError) as caught:
        detokenize_ids(many.SerializeToString())
    assert caught.value.field == "token_ids"
    assert detokenize_ids(octavo_pb2.DetokenizeRequest(model="m", token_ids=[5]).SerializeToString()) == ("m", [5])
