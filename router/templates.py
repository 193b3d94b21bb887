"""Chat templates: somebody else's code, rendered in a sandbox as transformers does it, within bounds.

Runs only in helper processes: a sandbox stops a template from reaching Python, nothing but a kill stops a loop.
Client text that spells a control token ("<|im_end|>") is marked before it meets the template, so that whoever encodes
the result knows which ones the template wrote.
"""

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import orjson

from octavo.router.chat import PLAIN, Rendering
from octavo.router.fields import unsupported
from octavo.router.generation import RequestError
from octavo.router.messages import Message, ToolCall
from octavo.router.plain_json import strings
from octavo.router.sandbox import MAX_ADDED_CHARACTERS, RENDER_BYTES, bounded_memory, environment

NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDEF)]  # never assigned, so never meant
HERE = chr(0xFDEF) + " "  # where a message is continued; the blank tells whether the template strips messages
Json = dict[str, Any]  # Any: JSON of any shape


def any_of(tokens: Sequence[str]) -> re.Pattern[str] | None:
    """Matches each of them, the longest first. Tokens of one character cannot be marked: the tokenizer has them."""
    longest_first = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


@dataclass(frozen=True, slots=True)
class Rendered:
    """mark: a character that stands inside every control token that the client spelt; None when it spelt none."""

    text: str
    mark: str | None


class ChatTemplate:
    """A compiled template. control: the strings that the tokenizer turns into control tokens."""

    def __init__(self, source: str, specials: Mapping[str, str], control: Sequence[str]) -> None:
        made = environment()
        with bounded_memory():  # jinja2 computes what is constant while it compiles
            self._template = made.from_string(source)
        self._source = source
        self._sees = _Sees.of(made.parse(source), source)
        self._specials = dict(specials)
        self._control = any_of(control)

    def render(self, messages: Sequence[Message], rendering: Rendering = PLAIN) -> Rendered:
        """Raises RequestError 400."""
        self._check(rendering)
        given = {
            "messages": [self._sees.message(message) for message in messages],
            "tools": list(rendering.tools) or None,
            "documents": list(rendering.documents) or None,
            **rendering.variables,
        }
        limit = MAX_ADDED_CHARACTERS + 2 * len(orjson.dumps(given))
        mark = self._mark(given)
        guarded = given if mark is None else _guarded(given, self._guard(mark))
        try:
            return Rendered(self._within_bounds(guarded, rendering, limit), mark)
        except MemoryError:
            pass
        gc.collect()  # only now can the frames go that hold it all
        raise failed(f"the chat template needs more than {RENDER_BYTES >> 20} MiB for these messages")

    def _within_bounds(self, given: Json, rendering: Rendering, limit: int) -> str:
        try:
            with bounded_memory():
                return self._text(given, rendering, limit)
        except (RequestError, MemoryError):
            raise
        except Exception as error:  # a template may fail in any way that Python code may
            raise failed(
                f"the chat template refused these messages: {type(error).__name__}: {str(error)[:300]}"
            ) from error

    def _check(self, rendering: Rendering) -> None:
        """What a template would leave out in silence is refused."""
        for name, items in (("tools", rendering.tools), ("documents", rendering.documents)):
            if items and name not in self._sees.names:
                raise unsupported(name, f"this model's chat template has no place for {name}: remove it")

    def _text(self, given: Json, rendering: Rendering, limit: int) -> str:
        final = self._open(given["messages"][-1]) if rendering.continue_final_message else ""
        text = self._bounded(self._specials | given | {"add_generation_prompt": rendering.add_generation_prompt}, limit)
        return _continued(text, final) if rendering.continue_final_message else text

    def _open(self, message: Json) -> str:
        """Put HERE at the end of the message's text; that text."""
        content = message.get("content")
        if content is None:
            raise not_continued("the last message has no content to continue")
        if "content" not in self._source:
            raise not_continued("the chat template does not render content")
        if isinstance(content, str):
            message["content"] = content + HERE
            return content
        last: str = content[-1]["text"]
        content[-1]["text"] = last + HERE
        return last

    def _bounded(self, given: Json, limit: int) -> str:
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(given):
            size += len(piece)
            if size > limit:
                raise failed(f"the chat template produced more than {limit} characters")
            pieces.append(piece)
        return "".join(pieces)

    def _mark(self, given: Json) -> str | None:
        control = self._control
        if control is None or not any(control.search(text) for text in strings(given)):
            return None
        for mark in NONCHARACTERS:
            if not any(mark in text for text in strings(given)):
                return mark
        raise failed("messages hold control tokens and every noncharacter U+FDD0..U+FDEE")

    def _guard(self, mark: str) -> Callable[[str], str]:
        control = self._control
        assert control is not None, "without control tokens there is no mark"
        return lambda text: _broken(control, mark, text)


@dataclass(frozen=True, slots=True)
class _Sees:
    """What a template knows of. names: variables that it reads; parts: it goes through the parts of a content."""

    names: frozenset[str]
    parts: bool
    developer: bool

    @staticmethod
    def of(tree: jinja2.nodes.Template, source: str) -> "_Sees":
        names = frozenset(node.name for node in tree.find_all(jinja2.nodes.Name) if node.ctx == "load")
        contents = {"content"} | set(_assigned(tree))
        loops = tree.find_all(jinja2.nodes.For)
        return _Sees(names, any(_is_content(loop.iter, contents) for loop in loops), "developer" in source)

    def message(self, message: Message) -> Json:
        """As transformers hands it to a template: without keys that have no value."""
        role = "system" if message.role == "developer" and not self.developer else message.role
        given = {
            "role": role,
            "content": self._content(message.content),
            "name": message.name,
            "thinking": message.reasoning,
            "reasoning_content": message.reasoning,
            "tool_calls": [_call(call) for call in message.tool_calls] or None,
            "tool_call_id": message.tool_call_id,
        }
        return {key: value for key, value in given.items() if value is not None}

    def _content(self, content: str | tuple[str, ...] | None) -> object:
        """Templates that know no parts get their texts in lines."""
        if not isinstance(content, tuple):
            return content
        return [{"type": "text", "text": text} for text in content] if self.parts else "\n".join(content)


def _call(call: ToolCall) -> Json:
    made: Json = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return made if call.id is None else {"id": call.id} | made


def _assigned(tree: jinja2.nodes.Template) -> Iterator[str]:
    """Names that stand for a message's content."""
    for node in tree.find_all(jinja2.nodes.Assign):
        if isinstance(node.target, jinja2.nodes.Name) and _is_content(node.node, {"content"}):
            yield node.target.name


def _is_content(node: jinja2.nodes.Node | None, names: set[str]) -> bool:
    """message.content, message['content'], a name for it, or one of them filtered."""
    while isinstance(node, jinja2.nodes.Filter):
        node = node.node
    if isinstance(node, jinja2.nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, jinja2.nodes.Getitem):
        return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
    return isinstance(node, jinja2.nodes.Name) and node.name in names


def _continued(text: str, final: str) -> str:
    """The text up to where the final message ends, with its trailing blank if the template keeps that."""
    tag = HERE.strip()
    if final.strip() not in text or tag not in text:
        raise not_continued("the final message does not appear as it is in what the chat template makes of it")
    at = text.rindex(tag)
    return text[:at] if text[at : at + len(HERE)] == HERE else text[:at].rstrip()


def _guarded(value: Any, guard: Callable[[str], str]) -> Any:  # Any: JSON of any shape
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, dict):
        return {guard(key): _guarded(item, guard) for key, item in value.items()}
    if isinstance(value, list):
        return [_guarded(item, guard) for item in value]
    return value


def _broken(control: re.Pattern[str], mark: str, text: str) -> str:
    """Put the mark after the first character of every control token, until none is left (they may overlap)."""
    while control.search(text):
        text = control.sub(lambda found: found[0][0] + mark + found[0][1:], text)
    return text


def failed(message: str) -> RequestError:
    return RequestError(400, "invalid_request_error", "chat_template_failed", message, field="messages")


def not_continued(message: str) -> RequestError:
    return RequestError(
        400,
        "invalid_request_error",
        "invalid_value",
        f"continue_final_message: {message}",
        field="continue_final_message",
    )
