"""From a request's body to an encoded request: the parsed fields and each prompt's packed ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import invalid
from octavo.router.openai_api.grpc_fields import TYPES, MessageKind, body_of, detokenize_ids, is_chat
from octavo.router.openai_api.openai import Kind, ParsedRequest, parse
from octavo.router.openai_api.options import MAX_SCORED_PROMPT
from octavo.router.openai_api.prompts import MAX_PROMPTS
from octavo.router.openai_api.responses.response_request import parse_response
from octavo.router.parsers.reasoning import Thought
from octavo.router.text.tokenizer import ModelTokenizer

# What a body is: JSON of a kind of completion, or a protobuf message of the public gRPC API.
BodyKind = Kind | MessageKind

INLINE_BODY_BYTES = 65_536  # parsed in the event loop: well under a millisecond
INLINE_TEXT_CHARACTERS = 4_096  # encoded in the event loop
INPUTS: Mapping[Kind, str] = {"completion": "prompt", "chat": "messages", "response": "input"}
MAX_DEPTH = 64  # of arrays and objects in each other: what walks them later need not fear for its stack


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """prompts: packed little-endian uint32 ids. echoes: the text of each, when the answer shows it. grammar: that the
    answers are bound to; empty: none. grammar_field: the field that asks for it. thought: where the prompt leaves the
    model's reasoning."""

    request: ParsedRequest
    prompts: tuple[bytes, ...]
    echoes: tuple[str, ...] = ()
    grammar: str = ""
    grammar_field: str = ""
    thought: Thought = "none"


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
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:  # few bodies have to be walked
        _check_depth(value)
    return value


def _check_depth(value: object) -> None:
    """Raises RequestError 400."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            held = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            inner += [one for one in held if type(one) is dict or type(one) is list]
        if not inner:
            return
        level = inner
    message = f"arrays and objects of the body lie deeper than {MAX_DEPTH} in each other"
    raise invalid(None, message, "json_too_deep")


def read(body_kind: BodyKind, body: bytes) -> ParsedRequest:
    """Raises RequestError 400."""
    if body_kind == "completion" or body_kind == "chat":
        return parse(body_kind, decode(body))
    if body_kind == "response":
        return parse_response(decode(body))
    return parse(*body_of(body_kind, body))


def encode(model: ModelTokenizer, body_kind: BodyKind, request: ParsedRequest) -> EncodedRequest:
    """A prompt need not leave room for an answer when only its ids are asked for."""
    prompts = tuple(model.encode(request))
    for prompt in prompts if body_kind != "tokenize" else ():
        check_length(request, len(prompt) // 4, model.context_length)
    options, sampling = request.options, request.sampling
    thought = "none" if request.kind == "completion" else model.thought(request, prompts[0])
    room = model.context_length - max(map(len, prompts)) // 4
    if sampling.min_tokens > max(0, room):
        raise invalid("min_tokens", f"min_tokens must be at most {room}: the context holds no more after the prompt")
    if len(prompts) * options.n > MAX_PROMPTS:
        raise invalid(
            "n", f"{len(prompts)} prompts with n {options.n} each: at most {MAX_PROMPTS} answers are given at once"
        )
    if sampling.prompt_logprobs is not None and max(map(len, prompts)) > 4 * MAX_SCORED_PROMPT:
        field = "echo" if options.prompt_table is None else "prompt_logprobs"
        text = f"{field} with log-probabilities is allowed up to {MAX_SCORED_PROMPT} tokens of prompt"
        raise invalid(field, text)
    return EncodedRequest(model.resolved(request), prompts, _echoes(model, request, prompts), thought=thought)


def _echoes(model: ModelTokenizer, request: ParsedRequest, prompts: Sequence[bytes]) -> tuple[str, ...]:
    """A text is shown as it came, ids as they read."""
    options = request.options
    if not options.echo:
        return ()
    return tuple(
        given if isinstance(given, str) and options.truncate is None else model.text(prompt, options.skip_special)
        for given, prompt in zip(request.prompts, prompts, strict=True)
    )


def detokenise(model: ModelTokenizer, body: bytes) -> Detokenised:
    """The text of a DetokenizeRequest. Raises RequestError 400."""
    asked, ids = detokenize_ids(body)
    return Detokenised(asked, model.decode("token_ids", ids))


def check_length(request: ParsedRequest, prompt_tokens: int, context_length: int) -> None:
    """Prompt and answer must fit together; with no max_tokens one token of answer must."""
    wanted = request.max_tokens or 1
    if prompt_tokens + wanted <= context_length:
        return
    what = "prompt" if request.kind == "completion" else "messages"
    if prompt_tokens >= context_length:
        field, hint = what, f"shorten {what}"
    else:
        field, hint = "max_tokens", f"lower max_tokens to at most {context_length - prompt_tokens} or shorten {what}"
    message = (
        f"the context holds {context_length} tokens; {prompt_tokens} of {what} and {wanted} more do not fit: {hint}"
    )
    raise invalid(field, message, "context_length_exceeded")


def read_quick(body_kind: BodyKind, body: bytes) -> ParsedRequest | None:
    """What may be parsed and encoded in the event loop: no template, and little text. Raises RequestError 400."""
    if len(body) > INLINE_BODY_BYTES or kind_of(body_kind, body) != "completion":
        return None
    request = read(body_kind, body)
    return request if is_quick(request) else None


def kind_of(body_kind: BodyKind, body: bytes) -> Kind:
    """What the body says of itself, before anything is checked."""
    if body_kind == "completion" or body_kind == "chat" or body_kind == "response":
        return body_kind
    return "chat" if is_chat(body_kind, body) else "completion"


def input_field(body_kind: BodyKind, body: bytes) -> str | None:
    """The field with what is to be tokenised; None for a message that is too large to look into here."""
    if body_kind in TYPES and len(body) > INLINE_BODY_BYTES:
        return None
    return INPUTS[kind_of(body_kind, body)]


def is_quick(request: ParsedRequest) -> bool:
    """May be encoded in the event loop: no template, no grammar, no lists of words, and little text."""
    return (
        request.kind == "completion"
        and request.structured is None
        and not request.options.bad_words
        and sum(len(prompt.encode()) for prompt in request.prompts if isinstance(prompt, str)) <= INLINE_TEXT_CHARACTERS
    )


def error_of(error: RequestError) -> dict[str, object]:
    return {
        "status": error.status,
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "field": error.field,
    }
