"""What moves along the line from tokens to bytes: pieces of one generation, and the totals of an answer.

    ids --generation--> text | Delta --parsed_answer--> Delta --writer--> formatter --> bytes

Plain text moves as a string: it is what nearly every call of the line carries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import Arguments, MessagePart, Reasoning
from octavo.router.parsers.tools.events import Content
from octavo.router.text.logprobs import TokenEntry


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of an answer. cached: of the prompt, how many came from the prefix cache."""

    prompt: int
    completion: int
    cached: int


@dataclass(slots=True)
class Delta:
    """The next piece of one generation.

    text: shown as it is, unless the answer is parsed. parts: of a parsed answer, what its text is made of; None: it is
    not parsed. entries: log-probabilities of its tokens. ids: all its ids, hidden ones too. prompt_ids: in the first
    piece, when requested. prompt_scores: packed log-probabilities of the prompt, in the last piece. usage: totals so
    far, when every event has them.
    """

    text: str = ""
    parts: Sequence[MessagePart] | None = None
    entries: Sequence[TokenEntry] = ()
    ids: Sequence[int] = ()
    prompt_ids: tuple[int, ...] | None = None
    prompt_scores: bytes | None = None
    usage: Usage | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.parts or self.entries or self.ids)

    @property
    def size(self) -> int:
        """Characters that it takes, by a rough count."""
        parts = sum(map(_size, self.parts)) if self.parts is not None else len(self.text)
        return parts + sum(64 * (2 + len(entry.scored.top)) for entry in self.entries if entry.scored)


def merged(deltas: Sequence[Delta]) -> Delta:
    """Several pieces that follow each other as one."""
    if len(deltas) == 1:
        return deltas[0]
    parsed = [delta.parts for delta in deltas if delta.parts is not None]
    return Delta(
        text="".join([delta.text for delta in deltas]),
        parts=_merged_parts(chain.from_iterable(parsed)) if parsed else None,
        entries=[*chain.from_iterable(delta.entries for delta in deltas)],
        ids=[*chain.from_iterable(delta.ids for delta in deltas)],
        prompt_ids=next((delta.prompt_ids for delta in deltas if delta.prompt_ids is not None), None),
        prompt_scores=deltas[-1].prompt_scores if deltas else None,
        usage=deltas[-1].usage if deltas else None,
    )


class AnswerWriter(Protocol):
    """Receives the pieces of one request's generations, by index. Calls are synchronous, as tokens come."""

    def text(self, index: int, text: str) -> None:
        """Some more plain text, never empty."""

    def delta(self, index: int, delta: Delta) -> None:
        """The next piece of an answer that is parsed or has details; the writer may keep it."""

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        """The last piece, perhaps empty, and why the generation ended."""

    def end(self, usage: Usage) -> None:
        """Every generation has finished."""

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        """The request has failed. held: what was held back for a stop string, by index; it belongs to the answer."""

    def forget(self, index: int) -> bool:
        """Drop one generation's pieces because it starts again; False when some of it has reached the client."""


def _merged_parts(parts: Iterable[MessagePart]) -> list[MessagePart]:
    """Neighbours of one kind as one."""
    merged: list[MessagePart] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Content) and isinstance(last, Content):
            merged[-1] = Content(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            merged[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, Arguments) and isinstance(last, Arguments) and part.index == last.index:
            merged[-1] = Arguments(part.index, last.text + part.text)
        else:
            merged.append(part)
    return merged


def _size(part: MessagePart) -> int:
    return len(part.text) if isinstance(part, Content | Reasoning | Arguments) else 64
