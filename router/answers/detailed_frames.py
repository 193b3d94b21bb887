"""The JSON of answers with details, whole or as server-sent events; formatters/frames.py writes plain text faster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from octavo.router.answers.detailed import DetailedPiece
from octavo.router.answers.formatters.chat_parts import delta
from octavo.router.answers.formatters.frames import OBJECTS, STREAM_OBJECTS, ChunkFormatter, Identity, Usage, head
from octavo.router.parsers.answer_parser import MessagePart as Shown
from octavo.router.text.logprobs import Body, TokenNamer, chat_body, completion_body, prompt_body, unpack


@dataclass(frozen=True, slots=True)
class DetailOptions:
    """Which details are shown. top: likeliest tokens beside each, None: no log-probabilities; prompt_top: the same of
    the prompt's table; asked_top: what the engine was asked for of the prompt."""

    names: TokenNamer
    top: int | None = None
    prompt_top: int | None = None
    asked_top: int = 0
    token_ids: bool = False
    usage: bool = False


@dataclass(frozen=True, slots=True)
class DetailedChoice:
    index: int
    part: DetailedPiece
    finish_reason: str
    more: Body = field(default_factory=dict)  # of a chat's message


class DetailedChunkFormatter(ChunkFormatter):
    """The events of one stream."""

    def __init__(self, identity: Identity, options: DetailOptions) -> None:
        super().__init__(identity, options.usage)
        self._options = options
        self._kind = identity.kind
        self._detailed_head = head(identity, STREAM_OBJECTS[identity.kind])

    def part(self, index: int, part: DetailedPiece) -> bytes:
        return self._event(index, part, {"content": part.text}, None)

    def last(self, index: int, part: DetailedPiece, reason: str) -> bytes:
        """A completion's last text travels with its reason; a chat's in an event before."""
        if self._kind == "completion":
            return self._event(index, part, {}, reason)
        before = b""
        if part.shows or part.ids:
            before = self.part(index, part)
        return before + self.ended(index, part.usage, reason)

    def shown(self, index: int, part: DetailedPiece, shown: Sequence[Shown]) -> bytes:
        """An event for each parsed part of a piece; the first event carries the details of its tokens."""
        bodies = [body for one in shown if (body := delta(one)) is not None]
        if not bodies and (part.entries or (part.ids and self._options.token_ids)):
            bodies = [{}]
        parts = [part, *(DetailedPiece(usage=part.usage) for _ in bodies[1:])]
        return b"".join([self._event(index, one, body, None) for one, body in zip(parts, bodies, strict=False)])

    def ended(self, index: int, usage: Usage | None, reason: str) -> bytes:
        """A chat's last event."""
        return self._event(index, DetailedPiece(usage=usage), {}, reason)

    def _event(self, index: int, part: DetailedPiece, body: Body, reason: str | None) -> bytes:
        options = self._options
        choice: Body = {"index": index}
        event: Body = {**self._detailed_head, "choices": [choice]}
        if self._kind == "chat":
            choice["delta"] = body
            if part.prompt_ids is not None:
                event["prompt_token_ids"] = part.prompt_ids
        else:
            choice["text"] = part.text
            if part.prompt_ids is not None:
                choice["prompt_token_ids"] = part.prompt_ids
        choice["logprobs"] = _logprobs(self._kind, options, part) if part.entries else None
        choice["finish_reason"] = reason
        if options.token_ids:
            choice["token_ids"] = part.ids
        if options.usage:
            event["usage"] = part.usage.body() if part.usage is not None else None
        return b"data: " + orjson.dumps(event) + b"\n\n"


def detailed_whole(
    identity: Identity, options: DetailOptions, choices: Iterable[DetailedChoice], usage: Usage
) -> bytes:
    body: Body = {**head(identity, OBJECTS[identity.kind]), "choices": []}
    body["choices"] = [_choice(identity, options, choice, body) for choice in choices]
    return orjson.dumps(body | {"usage": usage.body()})


def _choice(identity: Identity, options: DetailOptions, choice: DetailedChoice, body: Body) -> Body:
    """A chat's prompt details go into `body`, as in vLLM."""
    part = choice.part
    chat = identity.kind == "chat"
    shown: Body = {"index": choice.index}
    if chat:
        shown["message"] = {"role": "assistant", "content": part.text, "refusal": None, **choice.more}
    else:
        shown["text"] = part.text
    shown["logprobs"] = _logprobs(identity.kind, options, part) if options.top is not None else None
    shown["finish_reason"] = choice.finish_reason
    if options.token_ids:
        shown["token_ids"] = part.ids
    once = body if chat else shown
    if part.prompt_ids is not None:
        once["prompt_token_ids"] = part.prompt_ids
    if options.prompt_top is not None and part.prompt_scores is not None:
        once["prompt_logprobs"] = prompt_body(
            unpack(part.prompt_scores, options.asked_top), options.prompt_top, options.names
        )
    return shown


def _logprobs(kind: str, options: DetailOptions, part: DetailedPiece) -> Body | None:
    if options.top is None:
        return None
    render = chat_body if kind == "chat" else completion_body
    return render(part.entries, options.top, options.names)
