"""From a router's Submit to the engine's request. PURE: what is wrong is named by field, nothing silently mended."""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from octavo.proto.v1 import engine_pb2
from octavo.shared.hashing import block_hashes
from octavo.shared.limits import MAX_LOGPROBS
from octavo.shared.sampling_params import RANGES, InvalidSamplingParams, SamplingParams
from octavo.worker.messages.request import GRAMMAR, Invalid, NewRequest

MAX_SALT_BYTES = 64
_ranged = attrgetter(*RANGES)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a group can serve. eos_ids end a request unless it ignores them. features: the subset of FEATURES that it
    has."""

    vocabulary: int
    context_length: int
    block_size: int
    eos_ids: frozenset[int]
    prefix_caching: bool
    features: frozenset[str] = frozenset()


def read_submit(submit: engine_pb2.Submit, key: int, rules: Rules) -> NewRequest:
    """Raises Invalid naming the field."""
    prompt = _ids("prompt", submit.prompt, rules)
    generated = _ids("generated", submit.generated, rules)
    if not prompt:
        raise Invalid("prompt", "is empty; send at least one token")
    known = len(prompt) + len(generated)
    if known >= rules.context_length:
        raise Invalid("prompt", f"{known} tokens leave no room in the context of {rules.context_length}; shorten it")
    limits = submit.limits
    if limits.max_tokens < 1:
        raise Invalid("max_tokens", f"must be at least 1, is {limits.max_tokens}")
    if len(submit.salt) > MAX_SALT_BYTES:
        raise Invalid("cache_salt", f"has {len(submit.salt)} bytes; at most {MAX_SALT_BYTES} are allowed")
    asked = frozenset(limits.stop_ids)
    stops = asked if limits.ignore_eos else asked | rules.eos_ids
    sampling = _sampling(submit, stops, rules)
    hashes: list[bytes] = []
    if rules.prefix_caching:
        hashes = block_hashes(submit.prompt + submit.generated, submit.salt, rules.block_size)
    return NewRequest(
        key=key,
        prompt=prompt,
        generated=generated,
        sampling=sampling,
        max_tokens=limits.max_tokens,
        stop_ids=stops,
        priority=submit.priority,
        hashes=tuple(hashes),
        salt=submit.salt,
        grammar=submit.grammar,
    )


def _ids(field: str, packed: bytes, rules: Rules) -> tuple[int, ...]:
    if len(packed) % 4:
        raise Invalid(field, f"{len(packed)} bytes are not a whole number of uint32 ids")
    ids = array("I", packed)
    if sys.byteorder == "big":
        ids.byteswap()
    _check_vocabulary(field, ids, rules)
    return tuple(ids)


def _check_vocabulary(field: str, ids: Sequence[int], rules: Rules) -> None:
    if ids and max(ids) >= rules.vocabulary:
        raise Invalid(field, f"id {max(ids)} is not in the vocabulary of {rules.vocabulary}")


def _sampling(submit: engine_pb2.Submit, stops: frozenset[int], rules: Rules) -> SamplingParams:
    try:
        params = SamplingParams.from_proto(submit.sampling)
    except InvalidSamplingParams as error:
        raise Invalid(error.field, error.message) from error
    if not 0 < params.top_p <= 1:
        raise Invalid("top_p", f"must be over 0 and at most 1, is {params.top_p}")
    for field in (*params.features, *([GRAMMAR] if submit.grammar else [])):
        if field not in rules.features:
            raise Invalid(field, "is not supported on this group's device")
    if params.min_tokens > submit.limits.max_tokens:
        raise Invalid("min_tokens", f"{params.min_tokens} is over max_tokens, {submit.limits.max_tokens}")
    _check_ranges(params)
    forbidden = tuple(sorted(stop for stop in stops if stop < rules.vocabulary)) if params.min_tokens else ()
    _check_ids(params, forbidden, rules)
    return params if params.forbidden == forbidden else replace(params, forbidden=forbidden)


def _check_ranges(params: SamplingParams) -> None:
    for (field, (low, high)), value in zip(RANGES.items(), _ranged(params), strict=True):
        for number in [number for _, number in value] if isinstance(value, tuple) else (value,):
            _check(low <= number <= high, field, number)
    _check(params.repetition_penalty != 0, "repetition_penalty", 0.0)
    for field, top in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        if top is not None and top > MAX_LOGPROBS:
            raise Invalid(field, f"must be at most {MAX_LOGPROBS}, is {top}")


def _check_ids(params: SamplingParams, forbidden: tuple[int, ...], rules: Rules) -> None:
    _check_vocabulary("logit_bias", [token for token, _ in params.logit_bias], rules)
    _check_vocabulary("allowed_token_ids", params.allowed_token_ids, rules)
    if params.allowed_token_ids and not set(params.allowed_token_ids).difference(forbidden):
        raise Invalid("allowed_token_ids", "holds only ids that end the answer, which min_tokens forbids")
    for word in params.bad_words:
        if not word:
            raise Invalid("bad_words", "holds an empty word")
        _check_vocabulary("bad_words", word, rules)


def _check(holds: bool, field: str, value: float) -> None:
    """A NaN holds nowhere."""
    if not holds:
        raise Invalid(field, f"is out of its range: {value}")
