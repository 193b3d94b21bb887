"""Answers in OpenAI's JSON, whole or as server-sent events. What does not change in a stream is written once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from octavo.router.answers.formatters.chat_parts import delta
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import Kind, error_body
from octavo.router.parsers.answer_parser import MessagePart

DONE = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"
OBJECTS: Mapping[Kind, str] = {"completion": "text_completion", "chat": "chat.completion"}
STREAM_OBJECTS: Mapping[Kind, str] = {"completion": "text_completion", "chat": "chat.completion.chunk"}


@dataclass(frozen=True, slots=True)
class Usage:
    """cached: prompt tokens that came from the prefix cache."""

    prompt: int
    completion: int
    cached: int

    def body(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass(frozen=True, slots=True)
class Identity:
    """What every part of one answer repeats. created: Unix seconds."""

    kind: Kind
    id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    index: int
    text: str
    finish_reason: str
    more: Mapping[str, object] = field(default_factory=dict)  # of a chat's message


class EventFormatter(Protocol):
    """The events of one stream, as an endpoint has them."""

    def first(self, index: int) -> bytes:
        """Before a generation's first text."""

    def text(self, index: int, text: str) -> bytes:
        """Some more text."""

    def delta(self, index: int, part: MessagePart) -> bytes:
        """Any part of a chat's message; empty where the endpoint does not show it."""

    def finish(self, index: int, text: str, reason: str) -> bytes:
        """A generation's last text, perhaps empty, and why it ended."""

    def end(self, usage: Usage) -> bytes:
        """Every generation has finished."""

    def error(self, error: RequestError) -> bytes:
        """The last event of a stream that failed."""


class ChunkFormatter:
    """The events of one stream. with_usage: the last event carries it, the others `usage: null`."""

    def __init__(self, identity: Identity, with_usage: bool) -> None:
        self._identity = identity
        self._with_usage = with_usage
        self._chat = identity.kind == "chat"
        start = head(identity, STREAM_OBJECTS[identity.kind])
        self._start = b"data: " + orjson.dumps(start)[:-1] + b',"choices":['
        self._end = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"
        self._before = self._start + b'{"index":'
        key = b',"delta":{"content":' if self._chat else b',"text":'
        self._text_key = key
        close = b"}" if self._chat else b""
        self._after = close + b',"logprobs":null,"finish_reason":null}' + self._end
        self._single = self._before + b"0" + key

    def first(self, index: int) -> bytes:
        """A chat's first event names the role; a completion has none."""
        if not self._chat:
            return b""
        delta = b',"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b"%b%d%b%b" % (self._before, index, delta, self._end)

    def text(self, index: int, text: str) -> bytes:
        if index == 0:
            return self._single + orjson.dumps(text) + self._after
        return b"%b%d%b%b%b" % (self._before, index, self._text_key, orjson.dumps(text), self._after)

    def delta(self, index: int, part: MessagePart) -> bytes:
        shown = delta(part)
        if shown is None:
            return b""
        end = b',"logprobs":null,"finish_reason":null}'
        return b'%b%d,"delta":%b%b%b' % (self._before, index, orjson.dumps(shown), end, self._end)

    def finish(self, index: int, text: str, reason: str) -> bytes:
        """A completion's last text travels with its reason; a chat's in an event before."""
        if self._chat:
            last = self.text(index, text) if text else b""
            delta = b',"delta":{},"logprobs":null,"finish_reason":"%b"}' % reason.encode()
            return b"%b%b%d%b%b" % (last, self._before, index, delta, self._end)
        end = b',"logprobs":null,"finish_reason":"%b"}' % reason.encode()
        return b"%b%d%b%b%b%b" % (self._before, index, self._text_key, orjson.dumps(text), end, self._end)

    def end(self, usage: Usage) -> bytes:
        if not self._with_usage:
            return DONE
        return self._start + b'],"usage":' + orjson.dumps(usage.body()) + b"}\n\n" + DONE

    def error(self, error: RequestError) -> bytes:
        """Neither a finish_reason nor [DONE] follows."""
        return error_frame(error)


def error_frame(error: RequestError) -> bytes:
    return b"data: " + orjson.dumps(error_body(error)) + b"\n\n"


def chunk(data: bytes) -> bytes:
    """HTTP/1.1 chunked transfer."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(identity: Identity, choices: Sequence[AnswerChoice], usage: Usage) -> bytes:
    body = head(identity, OBJECTS[identity.kind])
    return orjson.dumps(
        body | {"choices": [_choice(identity.kind, choice) for choice in choices], "usage": usage.body()}
    )


def head(identity: Identity, kind: str) -> dict[str, object]:
    """What a whole answer, or each event, begins with. kind: of OBJECTS or STREAM_OBJECTS."""
    return {"id": identity.id, "object": kind, "created": identity.created, "model": identity.model}


def _choice(kind: Kind, choice: AnswerChoice) -> dict[str, object]:
    end = {"logprobs": None, "finish_reason": choice.finish_reason}
    if kind == "completion":
        return {"index": choice.index, "text": choice.text} | end
    message = {"role": "assistant", "content": choice.text, "refusal": None, **choice.more}
    return {"index": choice.index, "message": message} | end
