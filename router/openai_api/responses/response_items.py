"""The input of /v1/responses as chat messages: items of a conversation become what /v1/chat/completions is sent.

    {"role": "user", "content": [{"type": "input_text", ...}]}     {"role": "user", "content": [{"type": "text", ...}]}
    {"type": "function_call", "call_id", "name", "arguments"}      an assistant's message with tool_calls
    {"type": "function_call_output", "call_id", "output"}          a tool's message

An error of the chat's checks at `messages[i]` is reported at `input[j]`: nothing is checked twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import Fields, invalid, unsupported

ChatMessage = dict[str, Any]  # Any: JSON of a chat message

TEXT_PARTS = ("input_text", "output_text", "text")
PART_FIELDS = frozenset(("type", "text", "annotations", "logprobs"))
MESSAGE_FIELDS = frozenset(("type", "role", "content", "id", "status", "phase"))
CALL_FIELDS = frozenset(("type", "id", "call_id", "name", "arguments", "status"))
OUTPUT_FIELDS = frozenset(("type", "id", "call_id", "output", "status"))
ROLES = ("user", "assistant", "system", "developer")
_PLACE = re.compile(r"messages\[(\d+)\]")


@dataclass(slots=True)
class Conversation:
    """messages, and where in the request each of them stands."""

    messages: list[ChatMessage] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def add(self, place: str, message: ChatMessage) -> None:
        self.messages.append(message)
        self.places.append(place)

    def call(self, place: str, call: ChatMessage) -> None:
        """Calls of one turn are one message: adjacent calls, or calls after the assistant's own message."""
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages[-1].setdefault("tool_calls", []).append(call)
        else:
            self.add(place, {"role": "assistant", "content": None, "tool_calls": [call]})

    def in_response_terms(self, error: RequestError) -> RequestError:
        """An error of the chat's checks, with this endpoint's field names."""
        if error.field is None or not error.field.startswith("messages"):
            return error
        named, message = self._named(error.field), self._named(error.message)
        return RequestError(error.status, error.type, error.code, message, error.retry_after, named, error.final)

    def _named(self, text: str) -> str:
        def place(found: re.Match[str]) -> str:
            index = int(found[1])
            return self.places[index] if index < len(self.places) else "input"

        return re.sub(r"\bmessages\b", "input", _PLACE.sub(place, text))


def conversation(instructions: str | None, given: object) -> Conversation:
    """Raises RequestError 400 naming the item."""
    found = Conversation()
    if instructions:
        found.add("instructions", {"role": "developer", "content": instructions})
    if isinstance(given, str):
        found.add("input", {"role": "user", "content": given})
        return found
    if given is None:
        raise invalid("input", "input is required: a string or a list of items")
    if not isinstance(given, list) or not given:
        raise invalid("input", "input must be a string or a non-empty list of items")
    for index, item in enumerate(given):
        _item(found, f"input[{index}]", item)
    return found


def _item(found: Conversation, where: str, item: object) -> None:
    if not isinstance(item, dict):
        raise invalid(where, f"{where} must be an object")
    fields = Fields(item, f"{where}.")
    kind = fields.text("type") or "message"
    if kind == "message":
        _check_names(where, item, MESSAGE_FIELDS)
        found.add(where, _message(where, fields))
    elif kind == "function_call":
        _check_names(where, item, CALL_FIELDS)
        named = {name: _required(fields, name) for name in ("name", "arguments")}
        found.call(where, {"id": _required(fields, "call_id"), "type": "function", "function": named})
    elif kind == "function_call_output":
        _check_names(where, item, OUTPUT_FIELDS)
        content = _content(f"{where}.output", fields.get("output"))
        found.add(where, {"role": "tool", "tool_call_id": _required(fields, "call_id"), "content": content})
    else:
        raise unsupported(f"{where}.type", f"{where}.type {kind[:32]!r} is not supported")


def _message(where: str, fields: Fields) -> ChatMessage:
    role = fields.text("role")
    if role not in ROLES:
        raise invalid(f"{where}.role", f"{where}.role must be one of {', '.join(ROLES)}")
    return {"role": role, "content": _content(f"{where}.content", fields.get("content"))}


def _content(where: str, content: object) -> str | list[ChatMessage]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise invalid(where, f"{where} must be a string or a non-empty list of text parts")
    return [_part(f"{where}[{index}]", part) for index, part in enumerate(content)]


def _part(where: str, part: object) -> ChatMessage:
    if not isinstance(part, dict):
        raise invalid(where, f"{where} must be an object")
    if part.get("type") not in TEXT_PARTS:
        message = f"{where}.type must be one of {', '.join(TEXT_PARTS)}: other parts are not supported"
        raise unsupported(f"{where}.type", message)
    _check_names(where, part, PART_FIELDS)
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid(f"{where}.text", f"{where}.text must be a string")
    return {"type": "text", "text": text}


def _check_names(where: str, item: Mapping[str, object], known: frozenset[str]) -> None:
    for name, value in item.items():
        if name not in known and value is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: remove it")


def _required(fields: Fields, name: str) -> str:
    value = fields.text(name)
    if not value:
        raise invalid(fields.prefix + name, f"{fields.prefix}{name} is required: a string")
    return value
