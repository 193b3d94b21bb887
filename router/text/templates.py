"""Chat templates: untrusted code, rendered in a sandbox as transformers does it, within bounds.

Runs only in helper processes: a sandbox stops a template from reaching Python, nothing but a kill stops a loop.
Client text that spells a control token ("<|im_end|>") is marked before it meets the template, so that the encoder
knows which control tokens the template wrote.
"""

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.chat import DEFAULT_RENDERING, Rendering
from octavo.router.openai_api.fields import unsupported
from octavo.router.openai_api.messages import Message
from octavo.router.openai_api.plain_json import strings
from octavo.router.text.sandbox import MAX_ADDED_CHARACTERS, RENDER_BYTES, bounded_memory, environment
from octavo.router.text.template_input import TemplateInput

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
        self._input = TemplateInput.of(made.parse(source), source)
        self._specials = dict(specials)
        self._control = any_of(control)

    def render(self, messages: Sequence[Message], rendering: Rendering = DEFAULT_RENDERING) -> Rendered:
        """Raises RequestError 400."""
        self._check(rendering)
        given = {
            "messages": [self._input.message(message) for message in messages],
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
            if items and name not in self._input.names:
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
