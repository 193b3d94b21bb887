"""From a router's Submit to the engine's request. PURE: what is wrong is named by field, nothing silently mended."""

import math
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.proto.v1 import engine_pb2
from octavo.shared.hashing import block_hashes
from octavo.shared.limits import MAX_LOGPROBS
from octavo.worker.messages.request import FEATURES, Adjust, Invalid, NewRequest, Sampling

MAX_SALT_BYTES = 64


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
    if ids and max(ids) >= rules.vocabulary:
        raise Invalid(field, f"id {max(ids)} is not in the vocabulary of {rules.vocabulary}")
    return tuple(ids)


def _sampling(submit: engine_pb2.Submit, stops: frozenset[int], rules: Rules) -> Sampling:
    sampling = submit.sampling
    _check(math.isfinite(sampling.temperature) and sampling.temperature >= 0, "temperature", sampling.temperature)
    top_p = sampling.top_p or 1.0  # unset: off
    if not 0 < top_p <= 1:
        raise Invalid("top_p", f"must be over 0 and at most 1, is {top_p}")
    for field in _needed(submit):
        if field not in rules.features:
            raise Invalid(field, "is not supported on this group's device")
    return Sampling(
        sampling.temperature,
        sampling.top_k,
        top_p,
        sampling.seed,
        _adjust(submit, stops, rules),
        _top("logprobs", sampling.logprobs) if sampling.HasField("logprobs") else None,
        _top("prompt_logprobs", sampling.prompt_logprobs) if sampling.HasField("prompt_logprobs") else None,
    )


def _needed(submit: engine_pb2.Submit) -> Iterator[str]:
    """The FEATURES that the request needs."""
    sampling = submit.sampling
    adjust = sampling.adjust
    asked = (
        adjust.min_p,
        adjust.presence_penalty,
        adjust.frequency_penalty,
        adjust.repetition_penalty not in (0, 1),
        adjust.bias_ids,
        adjust.allowed,
        adjust.bad_words,
        submit.limits.min_tokens,
        sampling.HasField("logprobs"),
        sampling.HasField("prompt_logprobs"),
        submit.grammar,
    )
    return (field for field, is_asked in zip(FEATURES, asked, strict=True) if is_asked)


def _adjust(submit: engine_pb2.Submit, stops: frozenset[int], rules: Rules) -> Adjust | None:
    """None when nothing is changed."""
    adjust, min_tokens = submit.sampling.adjust, submit.limits.min_tokens
    if min_tokens > submit.limits.max_tokens:
        raise Invalid("min_tokens", f"{min_tokens} is over max_tokens, {submit.limits.max_tokens}")
    if not min_tokens and not submit.sampling.HasField("adjust"):
        return None
    repetition = adjust.repetition_penalty or 1.0  # unset: off
    _check(0 <= adjust.min_p <= 1, "min_p", adjust.min_p)
    _check(-2 <= adjust.presence_penalty <= 2, "presence_penalty", adjust.presence_penalty)
    _check(-2 <= adjust.frequency_penalty <= 2, "frequency_penalty", adjust.frequency_penalty)
    _check(0 < repetition <= 2, "repetition_penalty", repetition)
    allowed = _ids("allowed_token_ids", adjust.allowed, rules)
    forbidden = tuple(sorted(stop for stop in stops if stop < rules.vocabulary)) if min_tokens else ()
    if allowed and not set(allowed).difference(forbidden):
        raise Invalid("allowed_token_ids", "holds only ids that end the answer, which min_tokens forbids")
    bad_words = tuple(_ids("bad_words", word, rules) for word in adjust.bad_words)
    if not all(bad_words):
        raise Invalid("bad_words", "holds an empty word")
    return Adjust(
        min_p=adjust.min_p,
        presence_penalty=adjust.presence_penalty,
        frequency_penalty=adjust.frequency_penalty,
        repetition_penalty=repetition,
        bias=_bias(adjust, rules),
        allowed=allowed,
        bad_words=bad_words,
        min_tokens=min_tokens,
        forbidden=forbidden,
    )


def _bias(adjust: engine_pb2.Adjust, rules: Rules) -> tuple[tuple[int, float], ...]:
    ids = _ids("logit_bias", adjust.bias_ids, rules)
    if len(adjust.bias_values) != 4 * len(ids):
        raise Invalid("logit_bias", f"{len(ids)} ids have {len(adjust.bias_values)} bytes of values")
    values = array("f", adjust.bias_values)
    if sys.byteorder == "big":
        values.byteswap()
    for value in values:
        _check(-100 <= value <= 100, "logit_bias", value)
    return tuple(zip(ids, values, strict=True))


def _check(holds: bool, field: str, value: float) -> None:
    """A NaN holds nowhere."""
    if not holds:
        raise Invalid(field, f"is out of its range: {value}")


def _top(field: str, top: int) -> int:
    if top > MAX_LOGPROBS:
        raise Invalid(field, f"must be at most {MAX_LOGPROBS}, is {top}")
    return top
