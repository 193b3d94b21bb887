"""A protobuf request as the equivalent JSON body, so that one set of checks serves both APIs.

GenerateRequest --body_of--> ("completion" | "chat", {"prompt": ..., "max_tokens": ..., ...}) --> openai.parse
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from octavo.proto.v1 import octavo_pb2
from octavo.router.openai_api.fields import invalid, unsupported
from octavo.router.openai_api.openai import Kind

Body = dict[str, object]
PromptMessage = octavo_pb2.GenerateRequest | octavo_pb2.TokenizeRequest
MessageKind = Literal["generate", "tokenize"]
TYPES: Mapping[MessageKind, type[PromptMessage]] = {
    "generate": octavo_pb2.GenerateRequest,
    "tokenize": octavo_pb2.TokenizeRequest,
}
M = TypeVar("M", bound=Message)

MAX_DETOKENISED = 1_000_000
SERVING = ("n", "truncate_prompt_tokens", "cache_salt", "priority")


def decode(message: type[M], data: bytes) -> M:
    """Raises RequestError 400 when `data` is not such a message, or has a field that this server does not know."""
    try:
        decoded = message.FromString(data)
    except DecodeError as error:
        what = f"the message is not a valid {message.DESCRIPTOR.name}: {error}"
        raise invalid(None, what, "invalid_message") from error
    _known(decoded, "")
    return decoded


def body_of(body_kind: MessageKind, data: bytes) -> tuple[Kind, Body]:
    """Raises RequestError 400."""
    request = decode(TYPES[body_kind], data)
    kind, body = _input(request)
    if isinstance(request, octavo_pb2.GenerateRequest):
        body |= _sampling_fields(request) | _stop_fields(request) | _serving_fields(request)
    elif len(request.prompt) > 1:
        raise invalid("prompt", f"prompt holds {len(request.prompt)} prompts; one is tokenised in a call")
    return kind, body


def is_chat(body_kind: MessageKind, data: bytes) -> bool:
    """At little cost, before anything is checked; data that is no such message is no chat."""
    try:
        return bool(TYPES[body_kind].FromString(data).messages)
    except DecodeError:
        return False


def detokenize_ids(data: bytes) -> tuple[str | None, list[int]]:
    """The model that was asked for, and the ids. Raises RequestError 400."""
    request = decode(octavo_pb2.DetokenizeRequest, data)
    if len(request.token_ids) > MAX_DETOKENISED:
        message = f"token_ids holds {len(request.token_ids)} ids; at most {MAX_DETOKENISED} are served in one call"
        raise invalid("token_ids", message)
    return request.model if request.HasField("model") else None, list(request.token_ids)


def _input(request: PromptMessage) -> tuple[Kind, Body]:
    """With messages it is a chat; a prompt beside them is then refused as over HTTP."""
    body: Body = {}
    if request.HasField("model"):
        body["model"] = request.model
    if request.prompt:
        body["prompt"] = _prompt(request.prompt)
    if not request.messages:
        return "completion", body
    body["messages"] = [_message(f"messages[{index}]", item) for index, item in enumerate(request.messages)]
    return "chat", body


def _sampling_fields(request: octavo_pb2.GenerateRequest) -> Body:
    """Every field of it is optional, or absent when it is empty, and has the name that it has over HTTP."""
    _known(request.sampling, "sampling")
    body: Body = {}
    for field, value in request.sampling.ListFields():
        if field.name == "logit_bias":
            body[field.name] = {str(id): bias for id, bias in value.items()}
        else:
            body[field.name] = value if isinstance(value, str | int | float) else list(value)
    return body


def _stop_fields(request: octavo_pb2.GenerateRequest) -> Body:
    body: Body = {}
    if request.HasField("max_tokens"):
        body["max_tokens"] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if request.stop_token_ids:
        body["stop_token_ids"] = list(request.stop_token_ids)
    if request.ignore_eos:
        body["ignore_eos"] = True
    return body


def _serving_fields(request: octavo_pb2.GenerateRequest) -> Body:
    return {field.name: value for field, value in request.ListFields() if field.name in SERVING}


def _prompt(prompts: Iterable[octavo_pb2.Prompt]) -> object:
    """One prompt stands for itself, as most HTTP clients write it; several are a list."""
    several = [_one(f"prompt[{index}]", prompt) for index, prompt in enumerate(prompts)]
    return several[0] if len(several) == 1 else several


def _one(where: str, prompt: octavo_pb2.Prompt) -> str | list[int] | None:
    _known(prompt, where)
    kind = prompt.WhichOneof("kind")
    if kind == "text":
        return prompt.text
    if kind == "token_ids":
        _known(prompt.token_ids, f"{where}.token_ids")
        return list(prompt.token_ids.ids)
    return None


def _message(where: str, message: octavo_pb2.Message) -> Body:
    _known(message, where)
    body: Body = {"role": message.role}
    if message.HasField("content"):
        body["content"] = message.content
    if message.HasField("name"):
        body["name"] = message.name
    return body


def _known(message: Message, where: str) -> None:
    """protobuf would pass over what a newer client sends, and it would get another answer than the one asked for."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        name = f"{where}.{number}" if where else str(number)
        raise unsupported(name, f"unknown field number {name} in {message.DESCRIPTOR.name}: remove it")
