"""What few requests ask of the engine: read, refused by its field, or refused because the device lacks it."""

import struct
from array import array
from dataclasses import replace

import pytest

from octavo.proto.v1 import engine_pb2
from octavo.shared.hashing import block_hashes
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.leader.admission.submit import Rules, read_submit
from octavo.worker.messages.request import FEATURES, Invalid

RULES = Rules(100, 64, 16, frozenset({7}), True, frozenset(FEATURES))


def packed(*ids: int) -> bytes:
    return array("I", ids).tobytes()


def biased(*pairs: tuple[int, float]) -> bytes:
    return b"".join(struct.pack("<If", token, value) for token, value in pairs)


def submit(min_tokens: int = 0, salt: bytes = b"", logprobs: int | None = None, prompt_logprobs: int | None = None,
           grammar: str = "", **others: object) -> engine_pb2.Submit:  # fmt: skip
    return engine_pb2.Submit(
        prompt=packed(*range(20)),
        limits=engine_pb2.Limits(max_tokens=9, stop_ids=[3]),
        sampling=engine_pb2.SamplingParams(
            min_tokens=min_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs, **others
        ),
        salt=salt,
        grammar=grammar,
    )


def test_a_plain_request_carries_nothing_of_it() -> None:
    assert read_submit(submit(), 1, RULES).sampling == SamplingParams()


def test_everything_arrives() -> None:
    new = read_submit(
        submit(
            min_tokens=2, logprobs=0, prompt_logprobs=20, min_p=0.5, presence_penalty=1, frequency_penalty=-2,
            repetition_penalty=1.5, logit_bias=biased((9, -100), (5, 0.5)),
            allowed_token_ids=packed(1, 2), bad_words=[packed(4), packed(5, 6)],
        ), 1, RULES,
    )  # fmt: skip
    assert new.sampling == SamplingParams(
        min_p=0.5, presence_penalty=1.0, frequency_penalty=-2.0, repetition_penalty=1.5,
        logit_bias=((9, -100.0), (5, 0.5)), allowed_token_ids=(1, 2), bad_words=((4,), (5, 6)), min_tokens=2,
        forbidden=(3, 7), logprobs=0, prompt_logprobs=20,
    )  # fmt: skip


def test_min_tokens_alone_forbids_the_ids_that_end() -> None:
    assert read_submit(submit(min_tokens=2), 1, RULES).sampling == SamplingParams(min_tokens=2, forbidden=(3, 7))


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
    ("repetition_penalty", {"repetition_penalty": 0}),
    ("repetition_penalty", {"repetition_penalty": NAN}),
    ("logit_bias", {"logit_bias": biased((100, 0.0))}),
    ("logit_bias", {"logit_bias": packed(1)}),
    ("logit_bias", {"logit_bias": biased((1, NAN))}),
    ("logit_bias", {"logit_bias": biased((1, 101))}),
    ("allowed_token_ids", {"allowed_token_ids": packed(100)}),
    ("allowed_token_ids", {"allowed_token_ids": packed(3, 7), "min_tokens": 1}),
    ("bad_words", {"bad_words": [packed(1, 100)]}),
    ("bad_words", {"bad_words": [b""]}),
    ("bad_words", {"bad_words": [b"abc"]}),
    ("min_tokens", {"min_tokens": 10}),
    ("logprobs", {"logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("cache_salt", {"salt": bytes(65)}),
]


@pytest.mark.parametrize(("field", "sampling"), BAD, ids=str)
def test_what_is_out_of_range_is_refused_by_its_field(field: str, sampling: dict) -> None:
    with pytest.raises(Invalid) as caught:
        read_submit(submit(**sampling), 1, RULES)
    assert caught.value.field == field


VALID = {
    "min_p": {"min_p": 0.1},
    "presence_penalty": {"presence_penalty": 0.1},
    "frequency_penalty": {"frequency_penalty": 0.1},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "logit_bias": {"logit_bias": biased((1, 0.0))},
    "allowed_token_ids": {"allowed_token_ids": packed(1)},
    "bad_words": {"bad_words": [packed(1)]},
    "min_tokens": {"min_tokens": 1},
    "logprobs": {"logprobs": 0},
    "prompt_logprobs": {"prompt_logprobs": 0},
    "response_format": {"grammar": "{}"},
}


@pytest.mark.parametrize("field", FEATURES)
def test_what_the_device_lacks_is_refused_by_its_field(field: str) -> None:
    poor = replace(RULES, features=frozenset(FEATURES) - {field})
    read_submit(submit(**VALID[field]), 1, RULES)
    with pytest.raises(Invalid) as caught:
        read_submit(submit(**VALID[field]), 1, poor)
    assert caught.value.field == field and "not supported" in caught.value.message
    read_submit(submit(), 1, replace(RULES, features=frozenset()))


def test_ids_that_end_are_the_leaders_to_forbid() -> None:
    assert read_submit(submit(forbidden=packed(5)), 1, RULES).sampling == SamplingParams()
    assert read_submit(submit(forbidden=packed(5), min_tokens=1), 1, RULES).sampling.forbidden == (3, 7)


def test_a_field_of_a_newer_router_is_passed_over_and_goes_no_further() -> None:
    newer = submit()
    newer.sampling.MergeFromString(b"\xa0\x06\x01")  # field 100
    assert read_submit(newer, 1, RULES).sampling.to_bytes() == b""
