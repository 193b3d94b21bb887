"""From a request's body to what can be dispatched: the checked ask and each prompt's packed ids."""

from dataclasses import dataclass

import orjson

from octavo.router.fields import invalid
from octavo.router.generation import RequestError
from octavo.router.openai import Ask, Kind, parse
from octavo.router.tokens import TextModel

INLINE_BODY_BYTES = 65_536  # parsed in the event loop: well under a millisecond
INLINE_TEXT_CHARACTERS = 4_096  # encoded in the event loop


@dataclass(frozen=True, slots=True)
class Prepared:
    """prompts: packed little-endian uint32 ids. reasoning_open: the prompt ends inside the model's reasoning."""

    ask: Ask
    prompts: tuple[bytes, ...]
    reasoning_open: bool = False


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
    return Prepared(ask, prompts, ask.kind == "chat" and model.opens_reasoning(ask, prompts[0]))


def check_length(ask: Ask, prompt_tokens: int, context_length: int) -> None:
    """Prompt and answer must fit together; with no max_tokens one token of answer must."""
    wanted = ask.max_tokens if ask.max_tokens is not None else 1
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
    """May be encoded in the event loop: no template, and little text."""
    return ask.kind == "completion" and (
        sum(len(prompt.encode()) for prompt in ask.prompts if isinstance(prompt, str)) <= INLINE_TEXT_CHARACTERS
    )


def error_of(error: RequestError) -> dict[str, object]:
    return {
        "status": error.status,
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "field": error.field,
    }
