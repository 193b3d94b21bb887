"""From a request's body to what can be dispatched: the checked ask and each prompt's packed ids."""

from dataclasses import dataclass

import orjson

from octavo.router.fields import invalid
from octavo.router.generation import RequestError
from octavo.router.grpc_fields import TYPES, MessageForm, body_of, detokenize_ids, is_chat
from octavo.router.openai import Ask, Kind, parse
from octavo.router.tokens import TextModel

# What a body is: JSON of a kind of completion, or a protobuf message of the public gRPC API.
Form = Kind | MessageForm

INLINE_BODY_BYTES = 65_536  # parsed in the event loop: well under a millisecond
INLINE_TEXT_CHARACTERS = 4_096  # encoded in the event loop


@dataclass(frozen=True, slots=True)
class Prepared:
    """prompts: packed little-endian uint32 ids."""

    ask: Ask
    prompts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Detokenised:
    """model: the one that was asked for, if any."""

    model: str | None
    text: str


def decode(body: bytes) -> object:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(None, f"the body is not valid JSON: {error}", "invalid_json") from error
    return value


def read(form: Form, body: bytes) -> Ask:
    """Raises RequestError 400."""
    if form == "completion" or form == "chat":
        return parse(form, decode(body))
    return parse(*body_of(form, body))


def prepare(model: TextModel, form: Form, body: bytes) -> Prepared:
    """All of it, at whatever cost. Raises RequestError 400."""
    return encode(model, form, read(form, body))


def encode(model: TextModel, form: Form, ask: Ask) -> Prepared:
    """A prompt need not leave room for an answer when only its ids are asked for."""
    prompts = tuple(model.encode(ask))
    for prompt in prompts if form != "tokenize" else ():
        check_length(ask, len(prompt) // 4, model.context_length)
    return Prepared(ask, prompts)


def detokenise(model: TextModel, body: bytes) -> Detokenised:
    """The text of a DetokenizeRequest. Raises RequestError 400."""
    asked, ids = detokenize_ids(body)
    return Detokenised(asked, model.decode(ids))


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


def read_quick(form: Form, body: bytes) -> Ask | None:
    """What may be parsed and encoded in the event loop: no template, and little text. Raises RequestError 400."""
    if len(body) > INLINE_BODY_BYTES or kind_of(form, body) == "chat":
        return None
    ask = read(form, body)
    return ask if is_quick(ask) else None


def kind_of(form: Form, body: bytes) -> Kind:
    """What the body says of itself, before anything is checked."""
    if form == "completion" or form == "chat":
        return form
    return "chat" if is_chat(form, body) else "completion"


def input_field(form: Form, body: bytes) -> str | None:
    """The field with what is to be tokenised; None for a message that is too large to look into here."""
    if form in TYPES and len(body) > INLINE_BODY_BYTES:
        return None
    return "messages" if kind_of(form, body) == "chat" else "prompt"


def is_quick(ask: Ask) -> bool:
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
