"""What few requests ask of the engine: read, refused by its field, or refused because the device lacks it."""

from array import array
from dataclasses import replace

import pytest

from octavo.proto.v1 import engine_pb2
from octavo.shared.hashing import block_hashes
from octavo.worker.leader.admission.submit import Rules, read_submit
from octavo.worker.messages.request import FEATURES, Adjust, Invalid

RULES = Rules(100, 64, 16, frozenset({7}), True, frozenset(FEATURES))


def packed(*ids: int) -> bytes:
    return array("I", ids).tobytes()


def submit(min_tokens: int = 0, salt: bytes = b"", logprobs: int | None = None, prompt_logprobs: int | None = None,
           grammar: str = "", **adjust: object) -> engine_pb2.Submit:  # fmt: skip
    message = engine_pb2.Submit(
        prompt=packed(*range(20)),
        limits=engine_pb2.Limits(max_tokens=9, min_tokens=min_tokens, stop_ids=[3]),
        sampling=engine_pb2.Sampling(logprobs=logprobs, prompt_logprobs=prompt_logprobs),
        salt=salt,
        grammar=grammar,
    )
    if adjust:
        message.sampling.adjust.CopyFrom(engine_pb2.Adjust(**adjust))
    return message


def test_a_plain_request_carries_nothing_of_it() -> None:
    sampling = read_submit(submit(), 1, RULES).sampling
    assert (sampling.adjust, sampling.logprobs, sampling.prompt_logprobs) == (None, None, None)


def test_everything_arrives() -> None:
    new = read_submit(
        submit(
            min_tokens=2, logprobs=0, prompt_logprobs=20, min_p=0.5, presence_penalty=1, frequency_penalty=-2,
            repetition_penalty=1.5, bias_ids=packed(9, 5), bias_values=array("f", [-100, 0.5]).tobytes(),
            allowed=packed(1, 2), bad_words=[packed(4), packed(5, 6)],
        ), 1, RULES,
    )  # fmt: skip
    assert new.sampling.adjust == Adjust(
        0.5, 1.0, -2.0, 1.5, ((9, -100.0), (5, 0.5)), (1, 2), ((4,), (5, 6)), 2, forbidden=(3, 7)
    )
    assert (new.sampling.logprobs, new.sampling.prompt_logprobs) == (0, 20)


def test_min_tokens_alone_forbids_the_ids_that_end() -> None:
    assert read_submit(submit(min_tokens=2), 1, RULES).sampling.adjust == Adjust(min_tokens=2, forbidden=(3, 7))


def test_a_salt_is_the_key_of_the_hashes() -> None:
    new = read_submit(submit(salt=b"s" * 32), 1, RULES)
    assert new.salt == b"s" * 32
    assert new.hashes == tuple(block_hashes(packed(*range(20)), b"s" * 32))
    assert new.hashes != read_submit(submit(), 1, RULES).hashes


NAN = float("nan")
BAD = [
    ("min_p", {"min_p": 1.5}),
    ("min_p", {"min_p": NAN}),
    ("presence_penalty", {"presence_penalty": 2.5}),
    ("presence_penalty", {"presence_penalty": NAN}),
    ("frequency_penalty", {"frequency_penalty": -2.5}),
    ("repetition_penalty", {"repetition_penalty": -1}),
    ("repetition_penalty", {"repetition_penalty": NAN}),
    ("logit_bias", {"bias_ids": packed(100), "bias_values": bytes(4)}),
    ("logit_bias", {"bias_ids": packed(1), "bias_values": b""}),
    ("logit_bias", {"bias_ids": packed(1), "bias_values": array("f", [NAN]).tobytes()}),
    ("logit_bias", {"bias_ids": packed(1), "bias_values": array("f", [101]).tobytes()}),
    ("allowed_token_ids", {"allowed": packed(100)}),
    ("allowed_token_ids", {"allowed": packed(3, 7), "min_tokens": 1}),
    ("bad_words", {"bad_words": [packed(1, 100)]}),
    ("bad_words", {"bad_words": [b""]}),
    ("min_tokens", {"min_tokens": 10}),
    ("logprobs", {"logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("cache_salt", {"salt": bytes(65)}),
]


@pytest.mark.parametrize(("field", "wish"), BAD, ids=str)
def test_what_is_out_of_range_is_refused_by_its_field(field: str, wish: dict) -> None:
    with pytest.raises(Invalid) as caught:
        read_submit(submit(**wish), 1, RULES)
    assert caught.value.field == field


WISHES = {
    "min_p": {"min_p": 0.1},
    "presence_penalty": {"presence_penalty": 0.1},
    "frequency_penalty": {"frequency_penalty": 0.1},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "logit_bias": {"bias_ids": packed(1), "bias_values": bytes(4)},
    "allowed_token_ids": {"allowed": packed(1)},
    "bad_words": {"bad_words": [packed(1)]},
    "min_tokens": {"min_tokens": 1},
    "logprobs": {"logprobs": 0},
    "prompt_logprobs": {"prompt_logprobs": 0},
    "response_format": {"grammar": "{}"},
}


@pytest.mark.parametrize("field", FEATURES)
def test_what_the_device_lacks_is_refused_by_its_field(field: str) -> None:
    poor = replace(RULES, features=frozenset(FEATURES) - {field})
    read_submit(submit(**WISHES[field]), 1, RULES)
    with pytest.raises(Invalid) as caught:
        read_submit(submit(**WISHES[field]), 1, poor)
    assert caught.value.field == field and "not supported" in caught.value.message
    read_submit(submit(), 1, replace(RULES, features=frozenset()))
