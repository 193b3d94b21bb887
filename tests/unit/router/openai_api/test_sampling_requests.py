"""What few requests ask is checked field by field, and arrives."""

import pytest

from octavo.router.jobs.generation import Adjust, RequestError, Sampling
from octavo.router.openai_api.openai import Kind, ParsedRequest, parse
from octavo.router.openai_api.sampling import PLAIN, AdvancedParams, check_vocabulary, from_json, needs, with_params

TEXT = {"prompt": "x"}
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def ask(kind: Kind, **fields: object) -> ParsedRequest:
    return parse(kind, (TEXT if kind == "completion" else CHAT) | fields)


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
    assert ask("chat", logprobs=True).params.logprobs == 0
    assert ask("chat", logprobs=True, top_logprobs=20).params.logprobs == 20
    assert ask("chat", logprobs=False, top_logprobs=0).params is PLAIN
    assert ask("completion", logprobs=False).params is PLAIN
    assert ask("completion", logprobs=0).params.logprobs == 0


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
    assert ask("completion", **NEUTRAL).params is PLAIN
    assert ask("completion").params is PLAIN


EVERYTHING = {
    "n": 16, "min_p": 0.5, "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 2,
    "logit_bias": {"5": 100, "0": -100.0}, "allowed_token_ids": [9, 5, 9], "bad_words": ["x", " y"], "min_tokens": 3,
    "logprobs": 20, "prompt_logprobs": 2, "echo": True, "include_stop_str_in_output": True,
    "skip_special_tokens": False, "return_token_ids": True, "truncate_prompt_tokens": -1, "cache_salt": "",
}  # fmt: skip


def test_everything_arrives_also_through_json() -> None:
    import json
    from dataclasses import asdict

    params = ask("completion", **EVERYTHING).params
    salt = params.salt
    assert len(salt) == 64, "an empty salt is a salt too"
    assert params == AdvancedParams(
        n=16, min_p=0.5, presence_penalty=-2, frequency_penalty=2, repetition_penalty=2, bias=((5, 100.0), (0, -100.0)),
        allowed=(5, 9), bad_words=("x", " y"), min_tokens=3, logprobs=20, prompt_logprobs=2, echo=True,
        include_stop=True, skip_special=False, token_ids=True, truncate=-1, salt=salt,
    )  # fmt: skip
    assert from_json(json.loads(json.dumps(asdict(params)))) == params
    assert from_json(json.loads(json.dumps(asdict(PLAIN)))) is PLAIN


def test_every_salt_has_a_key_of_its_own_and_of_one_length() -> None:
    salts = ["", "x", "xx", "x" * 1024, "\u00e9", "6f"]
    keys = {ask("chat", cache_salt=salt).params.salt for salt in salts}
    assert len(keys) == len(salts) and {len(key) for key in keys} == {64}
    assert ask("chat").params.salt == ""


def test_ids_outside_the_vocabulary_are_named() -> None:
    check_vocabulary(AdvancedParams(bias=((9, 1.0),), allowed=(9,)), 10)
    for params, field, named in (
        (AdvancedParams(bias=((999999, -100.0),)), "logit_bias", "999999"),
        (AdvancedParams(allowed=(1, 10)), "allowed_token_ids", "10"),
    ):
        with pytest.raises(RequestError, match=named) as caught:
            check_vocabulary(params, 10)
        assert caught.value.field == field


def test_the_models_advice_holds_where_the_request_is_silent_and_the_device_can() -> None:
    advice = Sampling(adjust=Adjust(min_p=0.1, repetition_penalty=1.1))
    able = frozenset({"min_p", "repetition_penalty"})
    silent = with_params(advice, PLAIN, able)
    assert (silent.adjust.min_p, silent.adjust.repetition_penalty) == (0.1, 1.1)
    said = with_params(advice, AdvancedParams(min_p=0.0, repetition_penalty=1.0), able)
    assert said.adjust == Adjust() and needs(said, PLAIN) == frozenset()
    unable = with_params(advice, PLAIN, frozenset())
    assert unable.adjust == Adjust(), "so that a GPU still serves the model"
    asked = AdvancedParams(repetition_penalty=1.2)
    assert needs(with_params(advice, asked, frozenset()), asked) == {"repetition_penalty"}


def test_a_request_needs_what_it_asks_and_nothing_else() -> None:
    params = ask("completion", **EVERYTHING).params
    assert needs(with_params(Sampling(), params, frozenset()), params) == {
        "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
        "min_tokens", "logprobs", "prompt_logprobs",
    }  # fmt: skip
    words = AdvancedParams(bad_words=("x",), bad_word_ids=((1,),))
    assert needs(with_params(Sampling(), words, frozenset()), words) == {"bad_words"}
    assert needs(with_params(Sampling(), PLAIN, frozenset()), PLAIN) == frozenset()
    echo = AdvancedParams(echo=True, logprobs=1)
    assert needs(with_params(Sampling(), echo, frozenset()), echo) == {"logprobs", "prompt_logprobs"}
    assert with_params(Sampling(), echo, frozenset()).prompt_logprobs == 1
