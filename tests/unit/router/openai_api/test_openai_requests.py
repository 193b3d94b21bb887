"""Every field of a request is checked, and every complaint names it."""

import pytest

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import KNOWN, NEUTRAL, ParsedRequest, parse
from octavo.shared.sampling_params import SamplingParams

TEXT = {"prompt": "x"}
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def refused(kind: str, body: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(kind, body)  # type: ignore[arg-type]  # both kinds
    assert caught.value.status == 400 and caught.value.type == "invalid_request_error" and caught.value.message
    return caught.value


BAD = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", 1.0),
    ("max_tokens", "5"),
    ("max_tokens", True),
    ("max_tokens", [1]),
    ("temperature", -0.01),
    ("temperature", 2.01),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", float("inf")),
    ("temperature", float("nan")),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", "x"),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", 2**31),
    ("seed", 1.5),
    ("seed", 2**64),
    ("seed", "a"),
    ("stop", ""),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", {"a": 1}),
    ("stop", ["x"] * 17),
    ("stop", "x" * 257),
    ("stop_token_ids", 5),
    ("stop_token_ids", ["a"]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [2**32 - 1]),
    ("stop_token_ids", [1] * 65),
    ("ignore_eos", 1),
    ("stream", "true"),
    ("stream", 1),
    ("stream_options", {"include_usage": True}),
    ("model", 5),
    ("model", ["m"]),
    ("best_of", 3),
    ("suffix", "x"),
    ("top_logprobs", 2),
    ("tool_choice", "required"),
    ("functions", [{}]),
    ("chat_template", "{{ 1 }}"),
    ("timeout", 0),
    ("timeout", "5"),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_value_is_refused_by_both_endpoints_with_the_fields_name(field: str, value: object) -> None:
    assert refused("completion", TEXT | {field: value}).field == field
    assert refused("chat", CHAT | {field: value}).field == field


def test_null_means_absent_for_every_field() -> None:
    names = (set(NEUTRAL) | KNOWN["completion"] | KNOWN["chat"]) - {"prompt", "messages"}
    common = names - {"max_completion_tokens"}
    assert parse("completion", TEXT | dict.fromkeys(common)) == parse("completion", TEXT)
    assert parse("chat", CHAT | dict.fromkeys(names)) == parse("chat", CHAT)


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in NEUTRAL.items() for value in values])
def test_an_unserved_field_that_asks_for_nothing_is_accepted(field: str, value: object) -> None:
    assert parse("completion", TEXT | {field: value}) == parse("completion", TEXT)


def test_harmless_fields_are_accepted() -> None:
    harmless = {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "request_id": "same"}
    assert parse("chat", CHAT | harmless) == parse("chat", CHAT)


def test_every_served_field_arrives() -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": -1,
        "seed": -3,
        "stop": "END",
        "stop_token_ids": [7],
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "timeout": 30,
    }
    sampling, given = SamplingParams(0.0, 0, 0.5, 2**64 - 3), ("temperature", "top_p", "top_k", "seed")
    expected = ParsedRequest(
        "completion", "m", ("x",), (), 5, sampling, given, ("END",), (7,), True, True, True, timeout_s=30.0
    )
    assert parse("completion", TEXT | body) == expected


PROMPTS = [("x", ("x",)), (["a", "b"], ("a", "b")), ([1, 2], ([1, 2],)), ([[1], [2, 3]], ([1], [2, 3])), ("", ("",))]


@pytest.mark.parametrize(("prompt", "expected"), PROMPTS)
def test_a_prompt_may_be_text_or_ids_or_several(prompt: object, expected: tuple[object, ...]) -> None:
    assert parse("completion", {"prompt": prompt}).prompts == expected


BAD_PROMPTS = [
    (None, "prompt"),
    (5, "prompt"),
    ({}, "prompt"),
    ([], "prompt"),
    ([[]], "prompt[0]"),
    ([1, "x"], "prompt"),
    ([1, True], "prompt"),
    ([True], "prompt[0]"),
    ([-1], "prompt"),
    ([2**32 - 1], "prompt"),
    (["x", 5], "prompt[1]"),
    (["x"] * 257, "prompt"),
]


@pytest.mark.parametrize(("prompt", "field"), BAD_PROMPTS)
def test_a_bad_prompt_is_refused_with_its_place(prompt: object, field: str) -> None:
    assert refused("completion", {"prompt": prompt}).field == field


BAD_MESSAGES = [
    (None, "messages"),
    ("x", "messages"),
    ([], "messages"),
    ([1], "messages[0]"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "boss", "content": "x"}], "messages[0].role"),
    ([{"role": 5, "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
    ([{"role": "user", "content": "x", "weight": 1}], "messages[0].weight"),
    ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
]


@pytest.mark.parametrize(("messages", "field"), BAD_MESSAGES)
def test_a_bad_message_is_refused_with_its_place(messages: object, field: str) -> None:
    assert refused("chat", {"messages": messages}).field == field


def test_an_assistants_message_may_be_sent_back_as_it_came() -> None:
    echoed = {"role": "assistant", "content": "hi", "refusal": None, "tool_calls": None, "annotations": []}
    assert parse("chat", {"messages": [echoed]}).messages[0].content == "hi"


def test_the_two_names_of_max_tokens_agree_or_are_refused() -> None:
    assert parse("chat", CHAT | {"max_completion_tokens": 5}).max_tokens == 5
    assert parse("chat", CHAT | {"max_completion_tokens": 5, "max_tokens": 5}).max_tokens == 5
    assert refused("chat", CHAT | {"max_completion_tokens": 5, "max_tokens": 6}).field == "max_tokens"
    assert refused("chat", CHAT | {"max_completion_tokens": 0}).field == "max_completion_tokens"


@pytest.mark.parametrize("body", [None, 5, "x", [], [{}]])
def test_a_body_that_is_not_an_object_is_refused(body: object) -> None:
    refused("completion", body)
