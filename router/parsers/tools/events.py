"""What a tool parser makes of an answer's text, piece by piece.

    Let me see. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
    Content                 CallBegin("f")     CallArguments     CallEnd

Arguments are shown as they come, and are valid JSON at CallEnd. What turns out not to be a call is given as content,
marker and all: after CallAbandoned if its arguments had begun to be shown.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments are whole: a JSON object."""


@dataclass(frozen=True, slots=True)
class CallAbandoned:
    """The call that has begun is none; its text follows as content."""


ToolEvent = Content | CallBegin | CallArguments | CallEnd | CallAbandoned


class ToolParser(Protocol):
    """One answer's text. Whatever the pieces, the same calls and the same joined content."""

    def push(self, text: str) -> list[ToolEvent]:
        """Holds back only what may still become a marker, or a call that has not yet shown to be one."""

    def finish(self) -> list[ToolEvent]:
        """The text has ended: nothing is held back any more."""
