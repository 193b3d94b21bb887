"""Chat templates: somebody else's code, rendered in a sandbox, with a bound on what it may produce.

Runs only in helper processes: a sandbox stops a template from reaching Python, nothing but a kill stops a loop.
Client text that spells a control token ("<|im_end|>") is marked before it meets the template, so that whoever encodes
the result knows which ones the template wrote.
"""

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from octavo.router.generation import RequestError
from octavo.router.messages import Message

MAX_ADDED_CHARACTERS = 1 << 20  # beyond twice what the client sent
NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # never assigned, so never meant


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
        self._template = _environment().from_string(source)
        self._specials = dict(specials)
        self._control = any_of(control)

    def render(self, messages: Sequence[Message]) -> Rendered:
        """Raises RequestError 400."""
        mark = self._mark(messages)
        given = [_given(message, self._guard(mark)) for message in messages]
        limit = MAX_ADDED_CHARACTERS + 2 * sum(len(message.content) for message in messages)
        try:
            return Rendered(self._bounded(given, limit), mark)
        except RequestError:
            raise
        except Exception as error:  # a template may fail in any way that Python code may
            raise failed(
                f"the chat template refused these messages: {type(error).__name__}: {str(error)[:300]}"
            ) from error

    def _bounded(self, given: list[dict[str, str]], limit: int) -> str:
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(
            messages=given, add_generation_prompt=True, tools=None, documents=None, **self._specials
        ):
            size += len(piece)
            if size > limit:
                raise failed(f"the chat template produced more than {limit} characters")
            pieces.append(piece)
        return "".join(pieces)

    def _mark(self, messages: Sequence[Message]) -> str | None:
        texts = [text for message in messages for text in (message.content, message.name or "")]
        if self._control is None or not any(self._control.search(text) for text in texts):
            return None
        for mark in NONCHARACTERS:
            if not any(mark in text for text in texts):
                return mark
        raise failed("messages hold control tokens and every noncharacter U+FDD0..U+FDEF")

    def _guard(self, mark: str | None) -> Callable[[str], str]:
        control = self._control
        if mark is None or control is None:
            return lambda text: text
        return lambda text: _broken(control, mark, text)


def _broken(control: re.Pattern[str], mark: str, text: str) -> str:
    """Put the mark after the first character of every control token, until none is left (they may overlap)."""
    while control.search(text):
        text = control.sub(lambda found: found[0][0] + mark + found[0][1:], text)
    return text


def _given(message: Message, guard: Callable[[str], str]) -> dict[str, str]:
    given = {"role": message.role, "content": guard(message.content)}
    return given if message.name is None else given | {"name": guard(message.name)}


def failed(message: str) -> RequestError:
    return RequestError(400, "invalid_request_error", "chat_template_failed", message, field="messages")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Multiplication and powers are bounded too: `'x' * 10**10` would be one instruction."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        for value, other in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(other, int):
                if len(value) * other > MAX_ADDED_CHARACTERS:
                    raise jinja2.exceptions.SecurityError("the template multiplies a sequence beyond its bound")
        if operator == "**" and isinstance(right, int | float) and abs(right) > 64:
            raise jinja2.exceptions.SecurityError("the template raises to a power beyond its bound")
        result: object = SandboxedEnvironment.call_binop(self, context, operator, left, right)
        return result


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model wrote, for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """What Hugging Face gives to templates, in the same sandbox."""
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols], autoescape=False
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    """Without the HTML escapes of jinja2's own."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)
