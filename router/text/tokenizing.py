"""/tokenize and /detokenize: token ids of a prompt or a chat, by the checks and the encoder that serve it, without a
group. Both run in helper processes, and give back finished JSON.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

from octavo.router.openai_api.fields import Fields, invalid
from octavo.router.openai_api.known_fields import EVERYWHERE, MAX_TIMEOUT_S, MIN_TIMEOUT_S, Values, unknown_fields
from octavo.router.openai_api.openai import HARMLESS, KNOWN, NEUTRAL, ParsedRequest, parse
from octavo.router.openai_api.prompts import MAX_IDS, check_count, token_ids
from octavo.router.text.tokenizer import ModelTokenizer

# By other names than the messages of the gRPC API, which helpers read too.
Operation = Literal["tokenize_json", "detokenize_json"]
OPERATIONS: tuple[Operation, ...] = ("tokenize_json", "detokenize_json")

TOKENIZE = frozenset(("prompt", "messages", "add_special_tokens", "return_token_strs"))
DETOKENIZE = frozenset(("tokens",))
# What changes how a chat is rendered is checked where chats are.
RENDERING = frozenset(
    "messages tools tool_choice documents reasoning_effort chat_template chat_template_kwargs add_generation_prompt "
    "continue_final_message".split()
)
# A body that is good for an answer is good here: what only says how to sample has no effect.
SAMPLING = (KNOWN["completion"] | KNOWN["chat"] | NEUTRAL.keys()) - RENDERING - TOKENIZE - EVERYWHERE
REFUSED: Mapping[str, Values] = {"truncate_prompt_tokens": ()}
HARMLESS_HERE = (HARMLESS | SAMPLING) - REFUSED.keys()


@dataclass(frozen=True, slots=True)
class Tokenized:
    """body: the answer's JSON. model: that the client named, for the router to compare. unknown: fields ignored."""

    body: bytes
    model: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedTokenizeRequest:
    """A chat, or a prompt (None: a chat)."""

    prompt: str | None
    chat: ParsedRequest | None
    add_special_tokens: bool
    return_token_strs: bool
    unknown: tuple[str, ...]


def run(model: ModelTokenizer, operation: Operation, body: object) -> Tokenized:
    """body: decoded JSON. Raises RequestError 400."""
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object")
    fields = Fields(body)
    answer, unknown = (_tokenize if operation == "tokenize_json" else _detokenize)(model, body)
    fields.number("timeout", MIN_TIMEOUT_S, MAX_TIMEOUT_S)  # it is done, or was killed, after two seconds
    return Tokenized(orjson.dumps(answer), fields.text("model"), unknown)


def parse_tokenize(
    body: Mapping[str, object], fields_of: Callable[[Mapping[str, object]], Fields] = Fields
) -> ParsedTokenizeRequest:
    """Raises RequestError 400."""
    fields = fields_of(body)
    unknown = unknown_fields(body, TOKENIZE | RENDERING, HARMLESS_HERE, REFUSED)
    prompt = fields.text("prompt")
    if (prompt is None) == (fields.get("messages") is None):
        raise invalid("prompt", "give either prompt (a string) or messages (a chat)")
    special = fields.flag("add_special_tokens") or body.get("add_special_tokens") is None
    strings = fields.flag("return_token_strs")
    if prompt is not None:
        given = [name for name in RENDERING if body.get(name) is not None]
        if given:
            raise invalid(given[0], f"{given[0]} belongs to messages, not to a prompt")
        return ParsedTokenizeRequest(prompt, None, special, strings, unknown)
    if body.get("add_special_tokens") is True:
        raise invalid("add_special_tokens", "a chat has the special tokens of its template and no more: remove it")
    chat = parse("chat", {name: body[name] for name in RENDERING if name in body}, fields_of)
    return ParsedTokenizeRequest(None, chat, special, strings, unknown)


def _tokenize(model: ModelTokenizer, body: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    asked = parse_tokenize(body)
    if asked.chat is not None:
        ids = model.chat_ids(asked.chat)
    else:
        ids = model.text_ids(asked.prompt or "", asked.add_special_tokens)
    check_count("prompt" if asked.chat is None else "messages", len(ids))
    strings = model.token_strings(ids) if asked.return_token_strs else None
    answer: dict[str, object] = {"count": len(ids), "max_model_len": model.context_length, "tokens": ids}
    return answer | {"token_strs": strings}, asked.unknown


def parse_detokenize(
    body: Mapping[str, object], fields_of: Callable[[Mapping[str, object]], Fields] = Fields
) -> tuple[list[int], tuple[str, ...]]:
    """Raises RequestError 400."""
    fields = fields_of(body)
    unknown = unknown_fields(body, DETOKENIZE, HARMLESS, NEUTRAL)
    tokens = fields.get("tokens")
    if not isinstance(tokens, list):
        raise invalid("tokens", f"tokens is required: a list of at most {MAX_IDS} token ids")
    return token_ids("tokens", tokens) if tokens else [], unknown


def _detokenize(model: ModelTokenizer, body: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    tokens, unknown = parse_detokenize(body)
    return {"prompt": model.decode("tokens", tokens)}, unknown
