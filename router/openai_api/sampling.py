"""Advanced parameters: fields of sampling and of the answer that few requests have. Pure.

A body's fields become `AdvancedParams`, which become parts of a Job. A request that names none of the fields shares
PLAIN.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.router.jobs.generation import Adjust, Sampling
from octavo.router.openai_api.fields import Fields, invalid
from octavo.shared.limits import MAX_LOGPROBS

MAX_CHOICES = 16  # n
MAX_BIASES = 300
MAX_ALLOWED_IDS = 16_384
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARACTERS = 256
MAX_SALT_CHARACTERS = 1024
MOST_PRIORITY = 2**31 - 1
MAX_SCORED_PROMPT = 32_768  # tokens of a prompt with log-probabilities, which take a thousand bytes each
_ID = re.compile("0|[1-9][0-9]{0,9}")

COMMON = frozenset(
    "n min_p presence_penalty frequency_penalty repetition_penalty logit_bias allowed_token_ids bad_words min_tokens"
    " logprobs prompt_logprobs include_stop_str_in_output skip_special_tokens return_token_ids truncate_prompt_tokens"
    " cache_salt priority".split()
)
NAMES: Mapping[str, frozenset[str]] = {"completion": COMMON | {"echo"}, "chat": COMMON | {"top_logprobs"}}


@dataclass(frozen=True, slots=True)
class AdvancedParams:
    """None: not asked; the model's default. bias: (id, value). bad_words: text; bad_word_ids: the same, encoded.

    logprobs, prompt_logprobs: how many of the likeliest tokens beside each one. truncate: tokens of the prompt that are
    kept, its last ones; -1: as many as fit. continuous_usage: in every event. priority: a lower one goes first.
    """

    n: int = 1
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    bias: tuple[tuple[int, float], ...] = ()
    allowed: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    include_stop: bool = False
    skip_special: bool = True
    token_ids: bool = False
    truncate: int | None = None
    salt: str = ""
    continuous_usage: bool = False
    priority: int = 0

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of the prompt are asked, in whichever form."""
        return self.prompt_logprobs is not None or (self.echo and self.logprobs is not None)

    @property
    def prompt_top(self) -> int | None:
        """How many likeliest tokens the engine must report: the most that any part of the answer shows."""
        if not self.scores_prompt:
            return None
        return max(self.prompt_logprobs or 0, (self.logprobs or 0) if self.echo else 0)


PLAIN = AdvancedParams()


def parse(kind: str, fields: Fields, stream: bool, max_tokens: int | None) -> AdvancedParams:
    """Check the fields of NAMES[kind]. Raises RequestError 400."""
    if NAMES[kind].isdisjoint(fields.values):
        return PLAIN
    prompt_logprobs = fields.integer("prompt_logprobs", 0, MAX_LOGPROBS)
    if stream and prompt_logprobs is not None:
        raise invalid("prompt_logprobs", "prompt_logprobs is not available with stream: true; echo with logprobs is")
    min_tokens = fields.integer("min_tokens", 0, None) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise invalid("min_tokens", f"min_tokens must be at most max_tokens, {max_tokens}")
    skip_special = fields.flag("skip_special_tokens") or fields.get("skip_special_tokens") is None
    params = AdvancedParams(
        n=_or(fields.integer("n", 1, MAX_CHOICES), 1),
        min_p=fields.number("min_p", 0.0, 1.0),
        presence_penalty=fields.number("presence_penalty", -2.0, 2.0) or 0.0,
        frequency_penalty=fields.number("frequency_penalty", -2.0, 2.0) or 0.0,
        repetition_penalty=_repetition_penalty(fields),
        bias=_bias(fields.get("logit_bias")),
        allowed=_allowed(fields.get("allowed_token_ids")),
        bad_words=_bad_words(fields.get("bad_words")),
        min_tokens=min_tokens,
        logprobs=_chat_logprobs(fields) if kind == "chat" else _logprobs(fields),
        prompt_logprobs=prompt_logprobs,
        echo=kind == "completion" and fields.flag("echo"),
        include_stop=fields.flag("include_stop_str_in_output"),
        skip_special=skip_special,
        token_ids=fields.flag("return_token_ids"),
        truncate=_truncate(fields),
        salt=_salt(fields.text("cache_salt")),
        priority=fields.integer("priority", -MOST_PRIORITY, MOST_PRIORITY) or 0,
    )
    return PLAIN if params == PLAIN else params


def from_json(values: Mapping[str, Any]) -> AdvancedParams:  # Any: decoded JSON
    """AdvancedParams from decoded JSON; equal to PLAIN becomes PLAIN itself."""
    tuples = {
        "bias": tuple((token, value) for token, value in values["bias"]),
        "allowed": tuple(values["allowed"]),
        "bad_words": tuple(values["bad_words"]),
        "bad_word_ids": tuple(map(tuple, values["bad_word_ids"])),
    }
    params = AdvancedParams(**{**values, **tuples})
    return PLAIN if params == PLAIN else params


def check_vocabulary(params: AdvancedParams, size: int) -> None:
    """Ids must have a row in the model. Raises RequestError 400 naming the id."""
    for token, _ in params.bias:
        if token >= size:
            raise invalid(
                "logit_bias", f"logit_bias: the key {str(token)!r} is no token; the vocabulary ends at {size - 1}"
            )
    if params.allowed and max(params.allowed) >= size:
        text = f"allowed_token_ids holds the id {max(params.allowed)}; the vocabulary ends at {size - 1}"
        raise invalid("allowed_token_ids", text)


def with_params(sampling: Sampling, params: AdvancedParams, features: frozenset[str]) -> Sampling:
    """The request's parameters; for absent ones the model's defaults that the device supports."""
    default = sampling.adjust
    min_p = default.min_p if "min_p" in features else 0.0
    repetition = default.repetition_penalty if "repetition_penalty" in features else 1.0
    adjust = Adjust(
        min_p=_or(params.min_p, min_p),
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=_or(params.repetition_penalty, repetition),
        bias=params.bias,
        allowed=params.allowed,
        bad_words=params.bad_word_ids,
    )
    return replace(sampling, adjust=adjust, logprobs=params.logprobs, prompt_logprobs=params.prompt_top)


def needs(sampling: Sampling, params: AdvancedParams) -> frozenset[str]:
    """The fields that a group's device may be unable to serve."""
    adjust = sampling.adjust
    asked = {
        "min_p": adjust.min_p,
        "presence_penalty": adjust.presence_penalty,
        "frequency_penalty": adjust.frequency_penalty,
        "repetition_penalty": adjust.repetition_penalty != 1,
        "logit_bias": adjust.bias,
        "allowed_token_ids": adjust.allowed,
        "bad_words": adjust.bad_words,
        "min_tokens": params.min_tokens,
        "logprobs": params.logprobs is not None,
        "prompt_logprobs": params.scores_prompt,
    }
    return frozenset(field for field, value in asked.items() if value)


def _or(value: Any, default: Any) -> Any:  # Any: of one type
    return default if value is None else value


def _repetition_penalty(fields: Fields) -> float | None:
    penalty = fields.number("repetition_penalty", 0.0, 2.0)
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


def _bias(biases: object) -> tuple[tuple[int, float], ...]:
    if biases is None:
        return ()
    if not isinstance(biases, dict):
        raise invalid("logit_bias", "logit_bias must be an object: token ids as strings, and numbers")
    if len(biases) > MAX_BIASES:
        raise invalid("logit_bias", f"logit_bias has {len(biases)} entries; at most {MAX_BIASES} are allowed")
    return tuple(_one_bias(key, value) for key, value in biases.items())


def _one_bias(key: str, value: object) -> tuple[int, float]:
    if not _ID.fullmatch(key):
        raise invalid("logit_bias", f"logit_bias: the key {key[:64]!r} is no token id: digits without sign or point")
    if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
        raise invalid("logit_bias", f"logit_bias: the value of {key!r} must be a number in -100..100")
    return int(key), float(value)


def _allowed(ids: object) -> tuple[int, ...]:
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(type(item) is int and 0 <= item < 2**32 - 1 for item in ids):
        raise invalid("allowed_token_ids", "allowed_token_ids must be a list of token ids")
    if not 0 < len(ids) <= MAX_ALLOWED_IDS:
        text = f"allowed_token_ids holds {len(ids)} ids; 1..{MAX_ALLOWED_IDS} are allowed"
        raise invalid("allowed_token_ids", text)
    return tuple(sorted(set(ids)))


def _bad_words(words: object) -> tuple[str, ...]:
    if words is None:
        return ()
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise invalid("bad_words", "bad_words must be a list of strings")
    if len(words) > MAX_BAD_WORDS:
        raise invalid("bad_words", f"bad_words holds {len(words)} strings; at most {MAX_BAD_WORDS} are allowed")
    if not all(word.strip() and len(word) <= MAX_BAD_WORD_CHARACTERS for word in words):
        raise invalid("bad_words", f"a bad word has 1..{MAX_BAD_WORD_CHARACTERS} characters, and not only spaces")
    return tuple(words)


def _truncate(fields: Fields) -> int | None:
    kept = fields.integer("truncate_prompt_tokens", -1, None)
    if kept == 0:
        raise invalid("truncate_prompt_tokens", "truncate_prompt_tokens must be at least 1, or -1: as many as fit")
    return kept


def _salt(salt: str | None) -> str:
    """The key of the block hash, hexadecimal so that it may be JSON: of one length whatever the salt, none for none."""
    if salt is None:
        return ""
    if len(salt) > MAX_SALT_CHARACTERS:
        raise invalid("cache_salt", f"cache_salt has {len(salt)} characters; at most {MAX_SALT_CHARACTERS} are allowed")
    return hashlib.blake2b(salt.encode(), digest_size=32, person=b"octavo-salt").hexdigest()
