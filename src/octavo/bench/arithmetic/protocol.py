"""Requests to an OpenAI-compatible server, and the parsing of its answers. No clock, no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import OctavoError

MAX_MESSAGE = 400  # characters of a server's error that are kept
Json = dict[str, Any]  # Any: JSON


class BadEvent(OctavoError):
    """An event that is not what OpenAI's protocol says; the message shows it."""


@dataclass(frozen=True, slots=True)
class Api:
    """chat: /v1/chat/completions, else /v1/completions. extra: further fields of every request."""

    chat: bool
    model: str
    ignore_eos: bool
    extra: Mapping[str, Any]

    def body(self, prompt: str | list[int], output_tokens: int, *, stream: bool) -> bytes:
        """The request as JSON; one prompt."""
        fields: Json = {"model": self.model, "stream": stream}
        if self.chat:
            fields |= {"messages": [{"role": "user", "content": prompt}], "max_completion_tokens": output_tokens}
        else:
            fields |= {"prompt": prompt, "max_tokens": output_tokens}
        if stream:
            fields["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return json.dumps(fields | dict(self.extra)).encode()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the server counts them; None where it does not say."""

    prompt: int | None
    output: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream. has_content: it is part of the answer. tokens: it carries tokens, perhaps without text."""

    has_content: bool = False
    tokens: bool = False
    text: str = ""
    finished: bool = False
    usage: Usage | None = None


class Events:
    """Server-sent events out of the bytes of a stream, however they are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every line that is now complete; comments and other fields are left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


DONE = b"[DONE]"


def event(data: bytes, chat: bool) -> Event:
    """One event of a stream, [DONE] excepted. Raises BadEvent, also for an error that the server reports."""
    body = _object(data)
    if body.get("error"):
        raise BadEvent(message(data))
    usage = _usage(body.get("usage"))
    choices = body.get("choices")
    if not choices:
        return Event(usage=usage)
    choice = choices[0] if isinstance(choices, list) else None
    if not isinstance(choice, dict):
        raise BadEvent(f"an event with strange choices: {_shown(data)}")
    finished = choice.get("finish_reason") is not None
    if not chat:
        # A token may have no text of its own: a control token, or the first half of a character.
        return Event(True, True, str(choice.get("text") or ""), finished, usage)
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        raise BadEvent(f"an event without a delta: {_shown(data)}")
    return Event(True, _has_tokens(delta), str(delta.get("content") or ""), finished, usage)


def _has_tokens(delta: Mapping[str, Any]) -> bool:
    """Not the opening event, which names the role alone, nor the closing one, which is empty."""
    content = {name: value for name, value in delta.items() if name != "role" and value is not None}
    return any(content.values()) or (content.get("content") == "" and "role" not in delta)


def whole(data: bytes) -> tuple[str, Usage]:
    """Text and usage of an answer that was not streamed. Raises BadEvent."""
    body = _object(data)
    choices, usage = body.get("choices"), _usage(body.get("usage"))
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict) or usage is None:
        raise BadEvent(f"an answer without choices and usage: {_shown(data)}")
    return str(choices[0].get("text") or ""), usage


def first_model(data: bytes) -> str:
    """Of /v1/models. Raises BadEvent."""
    models = _object(data).get("data")
    name = models[0].get("id") if isinstance(models, list) and models and isinstance(models[0], dict) else None
    if not isinstance(name, str):
        raise BadEvent(f"no model in {_shown(data)}")
    return name


def message(data: bytes) -> str:
    """The message of an error body, in one line."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return _shown(data)
    error = body.get("error") if isinstance(body, dict) else None
    content = error.get("message") if isinstance(error, dict) else error
    return _shown(content.encode(errors="replace")) if isinstance(content, str) and content else _shown(data)


def _object(data: bytes) -> Json:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise BadEvent(f"not JSON: {_shown(data)}") from None
    if not isinstance(body, dict):
        raise BadEvent(f"not an object: {_shown(data)}")
    return body


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, output = (count if type(count) is int and count >= 0 else None for count in counts)
    return Usage(prompt, output)


def _shown(data: bytes) -> str:
    text = " ".join(data[: 4 * MAX_MESSAGE].decode(errors="replace").split())
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."
