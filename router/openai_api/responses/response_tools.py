"""Tools and text formats of /v1/responses, which are flat where a chat's are nested: converted to a chat's fields, and
the errors of the chat's checks to this endpoint's fields. Pure.

    {"type": "function", "name", "parameters", ...}     {"type": "function", "function": {"name", "parameters", ...}}
    {"format": {"type": "json_schema", "schema", ...}}  {"type": "json_schema", "json_schema": {"schema", ...}}
"""

import re
from collections.abc import Mapping
from typing import Any

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import invalid, unsupported

Json = dict[str, Any]  # Any: JSON of any shape

# Field names of a chat, and of this endpoint. The last is also a plain English word.
_NAMES = (
    (re.compile(r"\b(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"\btool_choice\.(function|allowed_tools)\b"), "tool_choice"),
    (re.compile(r"\bresponse_format(\.json_schema)?"), "text.format"),
    (re.compile(r"\bmax_tokens\b"), "max_output_tokens"),
    (re.compile(r"\bmessages\b"), "input"),
)


def to_chat_fields(body: Mapping[str, object]) -> Json:
    """tools, tool_choice and response_format, where the request has such. Raises RequestError 400 for a bad `text`."""
    chat: Json = {}
    tools = body.get("tools")
    if tools is not None:
        chat["tools"] = [_nested(tool) for tool in tools] if isinstance(tools, list) else tools
    if (choice := body.get("tool_choice")) is not None:
        chat["tool_choice"] = _choice(choice)
    if (form := _format(body.get("text"))) is not None:
        chat["response_format"] = form
    return chat


def echoed(body: Mapping[str, object]) -> Json:
    """Tools and formats as the answer repeats them; checked before."""
    tools = body.get("tools") or []
    assert isinstance(tools, list), "the chat side has checked it"
    defaults = {"description": None, "parameters": None, "strict": False}
    repeated: Json = {"tools": [defaults | {k: v for k, v in tool.items() if v is not None} for tool in tools]}
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if form is not None:
        repeated["text"] = {"format": form}
    repeated |= {name: body[name] for name in ("tool_choice", "parallel_tool_calls") if body.get(name) is not None}
    return repeated


def in_response_terms(error: RequestError) -> RequestError:
    """An error of the chat's checks, with this endpoint's field names."""
    if error.field is None:
        return error
    field, message = field_of(error.field), error.message
    for pattern, name in _NAMES if field != error.field else _NAMES[:-1]:
        message = pattern.sub(name, message)
    return RequestError(error.status, error.type, error.code, message, error.retry_after, field, error.final)


def field_of(field: str) -> str:
    for pattern, name in _NAMES:
        if pattern.match(field):
            return pattern.sub(name, field, count=1)
    return field


def _nested(tool: object) -> object:
    """Tools of other types are the chat side's to refuse."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _choice(choice: object) -> object:
    if not isinstance(choice, dict):
        return choice
    kind, rest = choice.get("type"), {name: value for name, value in choice.items() if name != "type"}
    if kind == "function":
        if not isinstance(choice.get("name"), str):
            raise invalid("tool_choice.name", "tool_choice.name is required: the name of a function")
        return {"type": kind, "function": rest}
    if kind == "allowed_tools":
        tools = rest.get("tools")
        nested = [_nested(tool) for tool in tools] if isinstance(tools, list) else tools
        return {"type": kind, "allowed_tools": rest | {"tools": nested}}
    return choice


def _format(text: object) -> Json | None:
    if text is None:
        return None
    if not isinstance(text, dict):
        raise invalid("text", "text must be an object")
    for name, value in text.items():
        if name != "format" and value is not None and (name, value) != ("verbosity", "medium"):
            raise unsupported(f"text.{name}", f"text.{name[:64]} is not supported with this value: remove it")
    form = text.get("format")
    if form is not None and not isinstance(form, dict):
        raise invalid("text.format", "text.format must be an object with a type")
    if form is None or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
