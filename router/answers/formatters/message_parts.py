"""Parts of a chat's answer in OpenAI's JSON: pieces of a stream, or one message."""

from collections.abc import Sequence
from typing import Any

from octavo.router.parsers.answer_parser import Arguments, Call, Dropped, MessagePart, Reasoning
from octavo.router.parsers.tools.events import Content

Json = dict[str, Any]  # Any: OpenAI's objects


def part_body(part: MessagePart) -> Json | None:
    """As OpenAI streams it: a call's name first, then pieces of its arguments. None: nothing is shown of it."""
    if isinstance(part, Content):
        return {"content": part.text}
    if isinstance(part, Reasoning):
        return {"reasoning_content": part.text, "reasoning": part.text}
    if isinstance(part, Call):
        function = {"name": part.name, "arguments": ""}
        return {"tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]}
    if isinstance(part, Arguments):
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}
    return None


def content_of(parts: Sequence[MessagePart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Content))


def kept(parts: Sequence[MessagePart]) -> list[MessagePart]:
    """Without calls that turned out to be none."""
    dropped = {part.index for part in parts if isinstance(part, Dropped)}
    return [part for part in parts if not (isinstance(part, Call | Arguments | Dropped) and part.index in dropped)]


def message(parts: Sequence[MessagePart], content: str) -> Json:
    """What a message has besides, or in place of, its content."""
    standing = kept(parts)
    calls = [_call(part, standing) for part in standing if isinstance(part, Call)]
    thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
    more: Json = {}
    if thought:
        more |= {"reasoning_content": thought, "reasoning": thought}
    if calls:
        more |= {"tool_calls": calls}
    return more | {"content": None} if more and not content else more


def _call(call: Call, parts: Sequence[MessagePart]) -> Json:
    arguments = "".join(part.text for part in parts if isinstance(part, Arguments) and part.index == call.index)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
