"""Parses a chat answer's text: reasoning, then content and tool calls.

    text --> ReasoningParser --content--> ToolParser --> parts
                   '--reasoning-------------------------> parts

Markers that are control tokens reach the parsers as characters that mean nothing else (constrained/formats.py), and no
further.
"""

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.router.parsers.reasoning import ReasoningParser
from octavo.router.parsers.tools.events import (
    CallAbandoned,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    ToolEvent,
    ToolParser,
)

ALPHANUMERIC = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call begins. index: which of the answer's."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """Some more of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The call was none; its text comes as content."""

    index: int


MessagePart = Reasoning | Content | Call | Arguments | Dropped


class AnswerParser:
    """One answer. only_first: further calls are left out. called: a call is whole; reason: of its end then."""

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolParser | None,
        new_id: Callable[[], str],
        only_first: bool = False,
        hidden: Mapping[int, None] | None = None,
        reason: str = "tool_calls",
    ) -> None:
        self.called = False
        self.reason = reason
        self._reasoning = reasoning
        self._tools = tools
        self._new_id = new_id
        self._only_first = only_first
        self._hidden = hidden
        self._index = -1

    def push(self, text: str) -> list[MessagePart]:
        if self._reasoning is None:
            return self._content(text)
        reasoning, content = self._reasoning.push(text)
        return self._thought(reasoning) + (self._content(content) if content else [])

    def finish(self) -> list[MessagePart]:
        """The text has ended: what was held back."""
        parts: list[MessagePart] = []
        if self._reasoning is not None:
            reasoning, content = self._reasoning.finish()
            parts = self._thought(reasoning) + (self._content(content) if content else [])
        if self._tools is not None:
            parts += self._parts(self._tools.finish())
        return parts

    def _thought(self, text: str) -> list[MessagePart]:
        text = self._shown(text)
        return [Reasoning(text)] if text else []

    def _content(self, text: str) -> list[MessagePart]:
        return self._parts(self._tools.push(text) if self._tools is not None else [Content(text)])

    def _parts(self, events: list[ToolEvent]) -> list[MessagePart]:
        return [part for event in events if (part := self._part(event)) is not None]

    def _part(self, event: ToolEvent) -> MessagePart | None:
        if isinstance(event, Content):
            text = self._shown(event.text)
            return Content(text) if text else None
        if self._only_first and self.called:
            return None
        if isinstance(event, CallBegin):
            self._index += 1
            return Call(self._index, self._new_id(), self._shown(event.name))
        if isinstance(event, CallArguments):
            text = self._shown(event.text)
            return Arguments(self._index, text) if text else None
        if isinstance(event, CallAbandoned):
            return Dropped(self._index)
        assert isinstance(event, CallEnd), "no other event is left"
        self.called = True
        return None

    def _shown(self, text: str) -> str:
        return text.translate(self._hidden) if self._hidden else text


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def mistral_call_id() -> str:
    """Mistral's templates take no other length."""
    return "".join(secrets.choice(ALPHANUMERIC) for _ in range(9))
