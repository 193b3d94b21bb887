"""Chat messages: role and text, whichever of OpenAI's spellings the client used."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.router.fields import Fields, invalid, unsupported

# OpenAI renamed `system` to `developer`; templates know the old name.
ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
KNOWN = frozenset(("role", "content", "name", "tool_call_id"))
# Clients send an assistant's message back as they got it: these are null or empty then.
ECHOED = frozenset(("refusal", "annotations", "audio", "function_call", "tool_calls", "reasoning", "reasoning_content"))
MAX_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str
    name: str | None = None


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
    for name, inner in value.items():
        if name not in KNOWN and not (name in ECHOED and not inner) and inner is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: remove it")
    fields = Fields(value, f"{where}.")
    role = fields.text("role")
    if role is None or role not in ROLES:
        raise invalid(f"{where}.role", f"{where}.role must be one of {', '.join(ROLES)}")
    return Message(ROLES[role], _content(f"{where}.content", role, fields.get("content")), fields.text("name"))


def _content(where: str, role: str, content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if not isinstance(content, list) or not content:
        raise invalid(where, f"{where} must be a string or a non-empty list of text parts")
    return "\n".join(_part(f"{where}[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if not isinstance(part, dict):
        raise invalid(where, f"{where} must be an object")
    if part.get("type") != "text":
        raise invalid(f"{where}.type", f"{where}.type must be 'text': other parts are not supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid(f"{where}.text", f"{where}.text must be a string")
    return text
