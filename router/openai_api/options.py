"""What few requests ask of the answer, beside how its tokens are drawn: fields of a body become `RequestOptions`. Pure.

A request that names none of the fields shares PLAIN.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.router.openai_api.fields import Fields, invalid
from octavo.shared.limits import MAX_LOGPROBS

MAX_CHOICES = 16  # n
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARACTERS = 256
MAX_SALT_CHARACTERS = 1024
MOST_PRIORITY = 2**31 - 1
MAX_SCORED_PROMPT = 32_768  # tokens of a prompt with log-probabilities, which take a thousand bytes each

COMMON = frozenset(
    "n bad_words prompt_logprobs include_stop_str_in_output skip_special_tokens return_token_ids"
    " truncate_prompt_tokens cache_salt priority".split()
)
NAMES: Mapping[str, frozenset[str]] = {"completion": COMMON | {"echo"}, "chat": COMMON}


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Each default asks for nothing.

    bad_words: text, whose ids are in SamplingParams once it is encoded. prompt_table: how many of the likeliest tokens
    the prompt's own log-probabilities show; None: none are shown. truncate: tokens of the prompt that are kept, its
    last ones; -1: as many as fit. continuous_usage: in every event. priority: a lower one goes first.
    """

    n: int = 1
    bad_words: tuple[str, ...] = ()
    prompt_table: int | None = None
    echo: bool = False
    include_stop: bool = False
    skip_special: bool = True
    token_ids: bool = False
    truncate: int | None = None
    salt: str = ""
    continuous_usage: bool = False
    priority: int = 0


PLAIN = RequestOptions()


def parse(kind: str, fields: Fields, stream: bool) -> RequestOptions:
    """Check the fields of NAMES[kind]. Raises RequestError 400."""
    prompt_logprobs = fields.integer("prompt_logprobs", 0, MAX_LOGPROBS)
    if stream and prompt_logprobs is not None:
        raise invalid("prompt_logprobs", "prompt_logprobs is not available with stream: true; echo with logprobs is")
    skip_special = fields.flag("skip_special_tokens") or fields.get("skip_special_tokens") is None
    n = fields.integer("n", 1, MAX_CHOICES)
    return RequestOptions(
        n=1 if n is None else n,
        bad_words=_bad_words(fields.get("bad_words")),
        prompt_table=prompt_logprobs,
        echo=kind == "completion" and fields.flag("echo"),
        include_stop=fields.flag("include_stop_str_in_output"),
        skip_special=skip_special,
        token_ids=fields.flag("return_token_ids"),
        truncate=_truncate(fields),
        salt=_salt(fields.text("cache_salt")),
        priority=fields.integer("priority", -MOST_PRIORITY, MOST_PRIORITY) or 0,
    )


def from_json(values: Mapping[str, Any]) -> RequestOptions:  # Any: decoded JSON
    """RequestOptions from their fields, decoded."""
    return RequestOptions(**{**values, "bad_words": tuple(values["bad_words"])})


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
