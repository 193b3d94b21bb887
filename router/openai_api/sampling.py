"""Sampling parameters of a body: JSON fields become SamplingParams of the same names. Pure.

A field that the body leaves out changes nothing; of MODEL_DEFAULTS it has the model's own value, once a job is made.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from octavo.router.openai_api.fields import Fields, invalid
from octavo.router.openai_api.options import RequestOptions
from octavo.shared.limits import MAX_LOGPROBS
from octavo.shared.sampling_params import FEATURES, RANGES, SamplingParams

# A model may have defaults of its own for these, in generation_config.json.
MODEL_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
MAX_BIASES = 300
MAX_ALLOWED_IDS = 16_384
_ID = re.compile("0|[1-9][0-9]{0,9}")

Values = dict[str, Any]  # Any: of each field its own type
Readers = Mapping[str, Callable[[Fields], object]]


def common(fields: Fields) -> Values:
    """What any request may have, by the names of SamplingParams, without what is absent. Raises RequestError 400."""
    return _read(_COMMON, fields)


def rare(kind: str, fields: Fields, options: RequestOptions, max_tokens: int | None) -> Values:
    """What few requests have, likewise. bad_words are text here, and options have them. Raises RequestError 400."""
    values = _read(_RARE, fields)
    if max_tokens is not None and values.get("min_tokens", 0) > max_tokens:
        raise invalid("min_tokens", f"min_tokens must be at most max_tokens, {max_tokens}")
    logprobs = _chat_logprobs(fields) if kind == "chat" else _logprobs(fields)
    scores = {"logprobs": logprobs, "prompt_logprobs": _prompt_logprobs(options, logprobs)}
    return values | {name: top for name, top in scores.items() if top is not None}


def from_json(values: Mapping[str, Any]) -> SamplingParams:  # Any: decoded JSON
    """SamplingParams from their fields, decoded."""
    return SamplingParams(**{name: _tuples(value) for name, value in values.items()})


def check_vocabulary(params: SamplingParams, size: int) -> None:
    """Ids must have a row in the model. Raises RequestError 400 naming the id."""
    for token, _ in params.logit_bias:
        if token >= size:
            raise invalid(
                "logit_bias", f"logit_bias: the key {str(token)!r} is no token; the vocabulary ends at {size - 1}"
            )
    allowed = params.allowed_token_ids
    if allowed and max(allowed) >= size:
        text = f"allowed_token_ids holds the id {max(allowed)}; the vocabulary ends at {size - 1}"
        raise invalid("allowed_token_ids", text)


def unset_defaults(defaults: SamplingParams, given: Collection[str], features: Collection[str]) -> Values:
    """The model's values of the fields that a request has not given, as far as the device serves them."""
    return {
        name: getattr(defaults, name)
        for name in MODEL_DEFAULTS
        if name not in given and (name not in FEATURES or name in features)
    }


def _read(readers: Readers, fields: Fields) -> Values:
    return {name: value for name, read in readers.items() if (value := read(fields)) is not None}


def _tuples(value: Any) -> Any:  # Any: decoded JSON
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _number(name: str) -> Callable[[Fields], float | None]:
    return lambda fields: fields.number(name, *RANGES[name])


def _top_k(fields: Fields) -> int | None:
    """0 and -1 both mean off."""
    top_k = fields.integer("top_k", -1, 2**31 - 1)
    return None if top_k is None else max(0, top_k)


def _top_p(fields: Fields) -> float | None:
    top_p = fields.number("top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise invalid("top_p", "top_p must be above 0 and at most 1")
    return top_p


def _seed(fields: Fields) -> int | None:
    """A negative one is the same 64 bits."""
    seed = fields.integer("seed", -(2**63), 2**64 - 1)
    return None if seed is None else seed % 2**64


def _repetition_penalty(fields: Fields) -> float | None:
    penalty = fields.number("repetition_penalty", *RANGES["repetition_penalty"])
    if penalty == 0.0:
        raise invalid("repetition_penalty", "repetition_penalty must be above 0 and at most 2")
    return penalty


def _chat_logprobs(fields: Fields) -> int | None:
    asked, top = fields.flag("logprobs"), fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    if top and not asked:
        raise invalid("top_logprobs", "top_logprobs needs logprobs: true")
    return (top or 0) if asked else None


def _logprobs(fields: Fields) -> int | None:
    """A completion's: how many; some clients say false for none."""
    return None if fields.get("logprobs") is False else fields.integer("logprobs", 0, MAX_LOGPROBS)


def _prompt_logprobs(options: RequestOptions, logprobs: int | None) -> int | None:
    """How many likeliest tokens the engine must report: the most that any part of the answer shows."""
    echoed = logprobs if options.echo else None
    shown = [top for top in (options.prompt_table, echoed) if top is not None]
    return max(shown, default=None)


def _bias(fields: Fields) -> tuple[tuple[int, float], ...] | None:
    biases = fields.get("logit_bias")
    if biases is None:
        return None
    if not isinstance(biases, dict):
        raise invalid("logit_bias", "logit_bias must be an object: token ids as strings, and numbers")
    if len(biases) > MAX_BIASES:
        raise invalid("logit_bias", f"logit_bias has {len(biases)} entries; at most {MAX_BIASES} are allowed")
    return tuple(_one_bias(key, value) for key, value in biases.items())


def _one_bias(key: str, value: object) -> tuple[int, float]:
    if not _ID.fullmatch(key):
        raise invalid("logit_bias", f"logit_bias: the key {key[:64]!r} is no token id: digits without sign or point")
    low, high = RANGES["logit_bias"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid("logit_bias", f"logit_bias: the value of {key!r} must be a number in {low:g}..{high:g}")
    return int(key), float(value)


def _allowed(fields: Fields) -> tuple[int, ...] | None:
    ids = fields.get("allowed_token_ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(item) is int and 0 <= item < 2**32 - 1 for item in ids):
        raise invalid("allowed_token_ids", "allowed_token_ids must be a list of token ids")
    if not 0 < len(ids) <= MAX_ALLOWED_IDS:
        text = f"allowed_token_ids holds {len(ids)} ids; 1..{MAX_ALLOWED_IDS} are allowed"
        raise invalid("allowed_token_ids", text)
    return tuple(sorted(set(ids)))


# How fields of a body are read; each is a field of SamplingParams.
_COMMON: Readers = {
    "temperature": lambda fields: fields.number("temperature", 0.0, 2.0),
    "top_p": _top_p,
    "top_k": _top_k,
    "seed": _seed,
}
_RARE: Readers = {
    "min_p": _number("min_p"),
    "presence_penalty": _number("presence_penalty"),
    "frequency_penalty": _number("frequency_penalty"),
    "repetition_penalty": _repetition_penalty,
    "logit_bias": _bias,
    "allowed_token_ids": _allowed,
    "min_tokens": lambda fields: fields.integer("min_tokens", 0, None),
}
COMMON = frozenset(_COMMON)
RARE: Mapping[str, frozenset[str]] = {
    "completion": frozenset((*_RARE, "logprobs")),
    "chat": frozenset((*_RARE, "logprobs", "top_logprobs")),
}
