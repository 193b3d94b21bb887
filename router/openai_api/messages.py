"""Chat messages: role, text and tool calls, whichever of OpenAI's spellings the client used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.plain_json import JsonLimits, check_bounds

ROLES = ("system", "developer", "user", "assistant", "tool")
KNOWN: Mapping[str, frozenset[str]] = {
    "assistant": frozenset(("role", "content", "name", "tool_calls", "reasoning", "reasoning_content")),
    "tool": frozenset(("role", "content", "name", "tool_call_id")),
}
OTHERS = frozenset(("role", "content", "name"))
# Clients send an assistant's message back as they got it: these are null or empty then.
ECHOED = frozenset(("refusal", "annotations", "audio", "function_call", "tool_calls", "tool_call_id"))
REASONING = ("reasoning_content", "reasoning")
MAX_MESSAGES = 10_000
MAX_CALLS = 128
MAX_NAME_CHARACTERS = 256
ARGUMENT_BOUNDS = JsonLimits(depth=64, size=8 << 20)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made before. arguments: decoded, as templates expect them."""

    name: str
    arguments: Mapping[str, Any]  # Any: JSON of any shape
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """content: text, or the texts of parts; None only beside tool calls. reasoning: that came before the content."""

    role: str
    content: str | tuple[str, ...] | None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None


def messages(value: object) -> tuple[Message, ...]:
    """Raises RequestError 400 naming the message and field."""
    if value is None:
        raise invalid("messages", "messages is required: a list of {role, content}")
    if not isinstance(value, list):
        raise invalid("messages", "messages must be a list")
    if not value:
        raise invalid("messages", "messages must not be empty")
    if len(value) > MAX_MESSAGES:
        raise invalid("messages", f"messages holds {len(value)} messages; at most {MAX_MESSAGES} are allowed")
    return tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))


def _message(where: str, value: object) -> Message:
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be an object")
    fields = Fields(value, f"{where}.")
    role = fields.text("role")
    if role is None or role not in ROLES:
        raise invalid(f"{where}.role", f"{where}.role must be one of {', '.join(ROLES)}")
    known = KNOWN.get(role, OTHERS)
    for name, inner in value.items():
        if name not in known and not (name in ECHOED and not inner) and inner is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported in {role} messages: remove it")
    calls = _calls(f"{where}.tool_calls", value.get("tool_calls") or None)
    return Message(
        role=role,
        content=_content(f"{where}.content", fields.get("content"), role, bool(calls)),
        name=_name(fields, "name"),
        tool_calls=calls,
        tool_call_id=_name(fields, "tool_call_id"),
        reasoning=_reasoning(fields) if role == "assistant" else None,
    )


def _name(fields: Fields, field: str) -> str | None:
    name = fields.text(field)
    if name is not None and len(name) > MAX_NAME_CHARACTERS:
        where = fields.prefix + field
        raise invalid(where, f"{where} has {len(name)} characters; at most {MAX_NAME_CHARACTERS} are allowed")
    return name


def _reasoning(fields: Fields) -> str | None:
    """Answers carry it under both names."""
    texts = [text for name in REASONING if (text := fields.text(name))]
    return texts[0] if texts else None


def _content(where: str, content: object, role: str, calls: bool) -> str | tuple[str, ...] | None:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return None if calls else ""
    if content == [] and calls:
        return None
    if not isinstance(content, list) or not content:
        raise invalid(where, f"{where} must be a string or a non-empty list of text parts")
    return tuple(_part(f"{where}[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if not isinstance(part, dict):
        raise invalid(where, f"{where} must be an object")
    if part.get("type") != "text":
        raise invalid(f"{where}.type", f"{where}.type must be 'text': other parts are not supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid(f"{where}.text", f"{where}.text must be a string")
    return text


def _calls(where: str, value: object) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid(where, f"{where} must be a list")
    if len(value) > MAX_CALLS:
        raise invalid(where, f"{where} holds {len(value)} calls; at most {MAX_CALLS} are allowed")
    return tuple(_call(f"{where}[{index}]", item) for index, item in enumerate(value))


def _call(where: str, value: object) -> ToolCall:
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be an object")
    for name, inner in value.items():
        if name not in ("id", "type", "function", "index") and inner is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: remove it")
    if value.get("type") not in (None, "function"):
        raise invalid(f"{where}.type", f"{where}.type must be 'function'")
    function = value.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{where}.function", f"{where}.function must be an object")
    fields = Fields(function, f"{where}.function.")
    name = _name(fields, "name")
    if not name:
        raise invalid(f"{where}.function.name", f"{where}.function.name is required")
    arguments = _arguments(f"{where}.function.arguments", fields.text("arguments"))
    return ToolCall(name, arguments, _name(Fields(value, f"{where}."), "id"))


def _arguments(where: str, text: str | None) -> Mapping[str, Any]:
    """A call without arguments is often given as an empty string."""
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError as error:
        raise invalid(where, f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be a string that holds a JSON object")
    check_bounds(where, value, ARGUMENT_BOUNDS)
    return value
