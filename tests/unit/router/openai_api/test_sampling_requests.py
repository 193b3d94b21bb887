"""What few requests ask is checked field by field, and arrives."""

from dataclasses import replace

import pytest

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api import options, sampling
from octavo.router.openai_api.openai import Kind, ParsedRequest, parse
from octavo.router.openai_api.options import PLAIN, RequestOptions
from octavo.router.openai_api.sampling import check_vocabulary, unset_defaults
from octavo.shared.sampling_params import SamplingParams

TEXT = {"prompt": "x"}
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def ask(kind: Kind, **fields: object) -> ParsedRequest:
    return parse(kind, (TEXT if kind == "completion" else CHAT) | fields)


def asks_nothing(request: ParsedRequest) -> bool:
    return request.options == PLAIN and request.sampling == SamplingParams()


def refused(kind: Kind, **fields: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        ask(kind, **fields)
    assert caught.value.status == 400 and caught.value.message
    return caught.value


BAD = [
    ("n", 0),
    ("n", 17),
    ("n", True),
    ("n", 1.5),
    ("min_p", 1.1),
    ("min_p", "x"),
    ("min_p", float("nan")),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", 2.1),
    ("logit_bias", []),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"abc": 1}),
    ("logit_bias", {"5.0": 1}),
    ("logit_bias", {"05": 1}),
    ("logit_bias", {"\u0665": 1}),
    ("logit_bias", {"99999999999": 1}),
    ("logit_bias", {"5": 1000}),
    ("logit_bias", {"5": float("nan")}),
    ("logit_bias", {"5": True}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", {str(index): 1 for index in range(301)}),
    ("allowed_token_ids", []),
    ("allowed_token_ids", [-1]),
    ("allowed_token_ids", [True]),
    ("allowed_token_ids", 5),
    ("allowed_token_ids", list(range(16_385))),
    ("bad_words", "x"),
    ("bad_words", [""]),
    ("bad_words", [" "]),
    ("bad_words", [1]),
    ("bad_words", ["x"] * 129),
    ("bad_words", ["x" * 257]),
    ("min_tokens", -1),
    ("min_tokens", 1.5),
    ("prompt_logprobs", 21),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", True),
    ("include_stop_str_in_output", 1),
    ("skip_special_tokens", "no"),
    ("return_token_ids", 1),
    ("truncate_prompt_tokens", 0),
    ("truncate_prompt_tokens", -2),
    ("cache_salt", 5),
    ("cache_salt", "x" * 1025),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_value_is_refused_by_both_endpoints_with_the_fields_name(field: str, value: object) -> None:
    assert refused("completion", **{field: value}).field == field
    assert refused("chat", **{field: value}).field == field


@pytest.mark.parametrize("value", [True, 21, -1, "5"])
def test_a_completions_logprobs_are_a_number(value: object) -> None:
    assert refused("completion", logprobs=value).field == "logprobs"


def test_a_chats_logprobs_are_a_flag_and_a_number() -> None:
    assert refused("chat", logprobs=5).field == "logprobs"
    assert refused("chat", top_logprobs=5).field == "top_logprobs"
    assert refused("chat", logprobs=True, top_logprobs=21).field == "top_logprobs"
    assert refused("completion", top_logprobs=5).field == "top_logprobs"
    assert ask("chat", logprobs=True).sampling.logprobs == 0
    assert ask("chat", logprobs=True, top_logprobs=20).sampling.logprobs == 20
    assert asks_nothing(ask("chat", logprobs=False, top_logprobs=0))
    assert asks_nothing(ask("completion", logprobs=False))
    assert ask("completion", logprobs=0).sampling.logprobs == 0


def test_fields_that_need_others_are_refused_without_them() -> None:
    assert refused("completion", min_tokens=6, max_tokens=5).field == "min_tokens"
    assert refused("completion", prompt_logprobs=1, stream=True).field == "prompt_logprobs"
    alone = {"continuous_usage_stats": True}
    assert refused("chat", stream=True, stream_options=alone).field == "stream_options.continuous_usage_stats"
    assert refused("chat", echo=True).field == "echo"
    assert refused("completion", max_tokens=0).field == "max_tokens"
    assert refused("completion", max_tokens=0, echo=False).field == "max_tokens"
    assert refused("chat", max_tokens=0).field == "max_tokens"
    assert ask("completion", max_tokens=0, echo=True).max_tokens == 0


NEUTRAL = {
    "n": 1, "min_p": None, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "bad_words": [],
    "min_tokens": 0, "echo": False, "include_stop_str_in_output": False, "skip_special_tokens": True,
    "return_token_ids": False,
}  # fmt: skip


def test_neutral_values_ask_nothing() -> None:
    assert asks_nothing(ask("completion", **NEUTRAL))
    assert asks_nothing(ask("completion"))


EVERYTHING = {
    "n": 16, "min_p": 0.5, "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 2,
    "logit_bias": {"5": 100, "0": -100.0}, "allowed_token_ids": [9, 5, 9], "bad_words": ["x", " y"], "min_tokens": 3,
    "logprobs": 20, "prompt_logprobs": 2, "echo": True, "include_stop_str_in_output": True,
    "skip_special_tokens": False, "return_token_ids": True, "truncate_prompt_tokens": -1, "cache_salt": "",
}  # fmt: skip


def test_everything_arrives_also_through_json() -> None:
    import json
    from dataclasses import asdict

    request = ask("completion", **EVERYTHING)
    salt = request.options.salt
    assert len(salt) == 64, "an empty salt is a salt too"
    assert request.options == RequestOptions(
        n=16, bad_words=("x", " y"), prompt_table=2, echo=True, include_stop=True, skip_special=False, token_ids=True,
        truncate=-1, salt=salt,
    )  # fmt: skip
    assert request.sampling == SamplingParams(
        min_p=0.5, presence_penalty=-2, frequency_penalty=2, repetition_penalty=2,
        logit_bias=((5, 100.0), (0, -100.0)), allowed_token_ids=(5, 9), min_tokens=3, logprobs=20, prompt_logprobs=20,
    )  # fmt: skip
    assert options.from_json(json.loads(json.dumps(asdict(request.options)))) == request.options
    encoded = replace(request.sampling, bad_words=((1,), (2, 3)), temperature=0.7)
    assert sampling.from_json(json.loads(json.dumps(asdict(encoded)))) == encoded


def test_every_salt_has_a_key_of_its_own_and_of_one_length() -> None:
    salts = ["", "x", "xx", "x" * 1024, "\u00e9", "6f"]
    keys = {ask("chat", cache_salt=salt).options.salt for salt in salts}
    assert len(keys) == len(salts) and {len(key) for key in keys} == {64}
    assert ask("chat").options.salt == ""


def test_ids_outside_the_vocabulary_are_named() -> None:
    check_vocabulary(SamplingParams(logit_bias=((9, 1.0),), allowed_token_ids=(9,)), 10)
    for params, field, named in (
        (SamplingParams(logit_bias=((999999, -100.0),)), "logit_bias", "999999"),
        (SamplingParams(allowed_token_ids=(1, 10)), "allowed_token_ids", "10"),
    ):
        with pytest.raises(RequestError, match=named) as caught:
            check_vocabulary(params, 10)
        assert caught.value.field == field


def filled(request: ParsedRequest, advice: SamplingParams, features: frozenset[str]) -> SamplingParams:
    return replace(request.sampling, **unset_defaults(advice, request.given, features))


def test_the_models_advice_holds_where_the_request_is_silent_and_the_device_can() -> None:
    advice = SamplingParams(0.7, 5, 0.9, min_p=0.1, repetition_penalty=1.1)
    able = frozenset({"min_p", "repetition_penalty"})
    assert filled(ask("chat"), advice, able) == advice
    said = {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0.0, "repetition_penalty": 1.0}
    neutral = filled(ask("chat", **said), advice, able)
    assert neutral == SamplingParams() and neutral.features == ()
    unable = filled(ask("chat"), advice, frozenset())
    assert unable == SamplingParams(0.7, 5, 0.9), "so that a GPU still serves the model"
    asked = filled(ask("chat", repetition_penalty=1.2), advice, frozenset())
    assert asked.features == ("repetition_penalty",)


def test_a_request_needs_what_it_asks_and_nothing_else() -> None:
    assert set(ask("completion", **EVERYTHING).sampling.features) == {
        "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
        "min_tokens", "logprobs", "prompt_logprobs",
    }  # fmt: skip
    assert ask("completion", bad_words=["x"]).sampling.features == (), "until they are encoded"
    assert ask("completion").sampling.features == ()
    echo = ask("completion", echo=True, logprobs=1)
    assert echo.sampling.features == ("logprobs", "prompt_logprobs")
    assert echo.sampling.prompt_logprobs == 1
    assert ask("completion", echo=True, logprobs=1, prompt_logprobs=3).sampling.prompt_logprobs == 3
    assert ask("completion", echo=True).sampling.prompt_logprobs is None
