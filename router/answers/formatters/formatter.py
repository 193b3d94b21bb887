"""What every format of an answer does: events of a stream as they come, or the whole body at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.router.answers.delta import Delta, Usage
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import Kind

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Identity:
    """What every part of one answer repeats. created: Unix seconds."""

    kind: Kind
    id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One generation that has ended."""

    index: int
    delta: Delta
    finish_reason: str


class Formatter(Protocol):
    """The answer to one request in one API's JSON. Methods of a stream are called in the stream's order."""

    def first(self, index: int) -> bytes:
        """Before a generation's first piece."""

    def text(self, index: int, text: str) -> bytes:
        """Some more plain text: the fast way, the same bytes as `delta` of it."""

    def delta(self, index: int, delta: Delta) -> bytes:
        """The next piece; empty where the format shows nothing of it."""

    def finish(self, index: int, delta: Delta, reason: str) -> bytes:
        """A generation's last piece, perhaps empty, and why it ended."""

    def end(self, usage: Usage) -> bytes:
        """Every generation has finished."""

    def error(self, error: RequestError) -> bytes:
        """The last event of a stream that failed: neither a finish reason nor an end follows."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of an answer that is not streamed. choices: by index."""
