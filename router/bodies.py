"""From a request's body to what can be dispatched: the checked ask and each prompt's packed ids."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from octavo.router.fields import invalid
from octavo.router.generation import RequestError
from octavo.router.openai import MAX_PROMPTS, Ask, Kind, parse
from octavo.router.sampling import MAX_SCORED_PROMPT, PLAIN
from octavo.router.tokens import TextModel

INLINE_BODY_BYTES = 65_536  # parsed in the event loop: well under a millisecond
INLINE_TEXT_CHARACTERS = 4_096  # encoded in the event loop


@dataclass(frozen=True, slots=True)
class Prepared:
    """prompts: packed little-endian uint32 ids. echoes: the text of each, when the answer shows it."""

    ask: Ask
    prompts: tuple[bytes, ...]
    echoes: tuple[str, ...] = ()


def decode(body: bytes) -> object:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(None, f"the body is not valid JSON: {error}", "invalid_json") from error
    return value


def prepare(model: TextModel, kind: Kind, body: bytes) -> Prepared:
    """All of it, at whatever cost. Raises RequestError 400."""
    return encode(model, parse(kind, decode(body)))


def encode(model: TextModel, ask: Ask) -> Prepared:
    prompts = tuple(model.encode(ask))
    for prompt in prompts:
        check_length(ask, len(prompt) // 4, model.context_length)
    extras = ask.extras
    if extras is PLAIN:
        return Prepared(ask, prompts)
    room = model.context_length - max(map(len, prompts)) // 4
    if extras.min_tokens > room:
        raise invalid("min_tokens", f"min_tokens must be at most {room}: the context holds no more after the prompt")
    if len(prompts) * extras.n > MAX_PROMPTS:
        raise invalid(
            "n", f"{len(prompts)} prompts with n {extras.n} each: at most {MAX_PROMPTS} answers are given at once"
        )
    if extras.scores_prompt and max(map(len, prompts)) > 4 * MAX_SCORED_PROMPT:
        field = "echo" if extras.prompt_logprobs is None else "prompt_logprobs"
        text = f"{field} with log-probabilities is allowed up to {MAX_SCORED_PROMPT} tokens of prompt"
        raise invalid(field, text)
    return Prepared(replace(ask, extras=model.resolved(extras)), prompts, _echoes(model, ask, prompts))


def _echoes(model: TextModel, ask: Ask, prompts: Sequence[bytes]) -> tuple[str, ...]:
    """A text is shown as it came, ids as they read."""
    extras = ask.extras
    if not extras.echo:
        return ()
    return tuple(
        given if isinstance(given, str) and extras.truncate is None else model.text(prompt, extras.skip_special)
        for given, prompt in zip(ask.prompts, prompts, strict=True)
    )


def check_length(ask: Ask, prompt_tokens: int, context_length: int) -> None:
    """Prompt and answer must fit together; with no max_tokens one token of answer must."""
    wanted = ask.max_tokens or 1
    if prompt_tokens + wanted <= context_length:
        return
    what = "messages" if ask.kind == "chat" else "prompt"
    if prompt_tokens >= context_length:
        field, hint = what, f"shorten {what}"
    else:
        field, hint = "max_tokens", f"lower max_tokens to at most {context_length - prompt_tokens} or shorten {what}"
    message = (
        f"the context holds {context_length} tokens; {prompt_tokens} of {what} and {wanted} more do not fit: {hint}"
    )
    raise invalid(field, message, "context_length_exceeded")


def is_quick(ask: Ask) -> bool:
    """May be encoded in the event loop: no template, no lists of words, and little text."""
    return (
        ask.kind == "completion"
        and not ask.extras.bad_words
        and (sum(len(prompt.encode()) for prompt in ask.prompts if isinstance(prompt, str)) <= INLINE_TEXT_CHARACTERS)
    )


def error_of(error: RequestError) -> dict[str, object]:
    return {
        "status": error.status,
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "field": error.field,
    }
