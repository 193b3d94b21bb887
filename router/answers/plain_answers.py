"""The two forms of an answer of plain text: collected, or written as server-sent events as it comes."""

import asyncio
from collections.abc import Mapping, Sequence

from octavo.router.answers.answers import BUFFER_BYTES, MERGED_CHARACTERS, Tally
from octavo.router.answers.formatters.chat_parts import content_of, message
from octavo.router.answers.formatters.frames import (
    LAST_CHUNK,
    AnswerChoice,
    EventFormatter,
    Identity,
    Usage,
    chunk,
    whole,
)
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import MessagePart


class WholeAnswer:
    """Collects; the handler answers with `body` at the end."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._texts: dict[int, list[str]] = {}
        self._choices: list[AnswerChoice] = []
        self.body = b""

    def text(self, index: int, text: str) -> None:
        self._texts.setdefault(index, []).append(text)

    def finish(self, index: int, text: str, reason: str) -> None:
        self._choices.append(AnswerChoice(index, "".join([*self._texts.pop(index, ()), text]), reason))

    def parts(self, index: int, parts: Sequence[MessagePart], reason: str) -> None:
        """In place of text: all that a chat's message is made of."""
        content = content_of(parts)
        self._choices.append(AnswerChoice(index, content, reason, message(parts, content)))

    def end(self, usage: Usage) -> None:
        self.body = whole(self._identity, sorted(self._choices, key=lambda choice: choice.index), usage)

    def render(self) -> bytes:
        """The body, once it has ended."""
        return self.body

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        """The handler answers with the error."""

    def forget(self, index: int) -> bool:
        self._texts.pop(index, None)
        return True


class AnswerStream:
    """Writes events straight to the transport. Nothing is sent before the first token, so an early error has a status.

    A client that does not read: its buffer fills to BUFFER_BYTES, then text waits here and goes out as one event.
    A client that has left: nothing is written, and the end of its connection, which is due, cancels the request.
    """

    def __init__(
        self, transport: asyncio.Transport, head: bytes, chunked: bool, frames: EventFormatter, tally: Tally
    ) -> None:
        self.begun = False
        self.has_left = False  # the client, before all was written
        self._transport = transport
        self._head = head
        self._chunked = chunked
        self._frames = frames
        self._tally = tally
        self._named: set[int] = set()
        self._waiting: dict[int, str] = {}

    def text(self, index: int, text: str) -> None:
        if self._transport.get_write_buffer_size() > BUFFER_BYTES:
            self._hold(index, text)
            return
        if self._waiting:
            text = self._waiting.pop(index, "") + text
        self._write(self._first(index) + self._frames.text(index, text))

    def _hold(self, index: int, text: str) -> None:
        held = self._waiting[index] = self._waiting.get(index, "") + text
        self.held(len(held) > MERGED_CHARACTERS)

    @property
    def slow(self) -> bool:
        """The client does not read: what comes is to be merged."""
        return self._transport.get_write_buffer_size() > BUFFER_BYTES

    def held(self, too_much: bool) -> None:
        """A write waits for the client, here or in the writer before this."""
        self._tally.merged_writes += 1
        if too_much:
            self._transport.abort()

    def parts(self, index: int, parts: Sequence[MessagePart]) -> None:
        """Of a chat's message, each in an event."""
        shown = self._first(index) + b"".join([self._frames.delta(index, part) for part in parts])
        if shown:  # an empty chunk would be the stream's last
            self._write(shown)

    def finish(self, index: int, text: str, reason: str) -> None:
        text = self._waiting.pop(index, "") + text
        self._write(self._first(index) + self._frames.finish(index, text, reason))

    def end(self, usage: Usage) -> None:
        self._last(self._frames.end(usage))

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        if not self.begun:
            return  # the handler answers with the error's status
        texts = {index: self._waiting.get(index, "") + held.get(index, "") for index in {*self._waiting, *held}}
        events = [self._first(index) + self._frames.text(index, text) for index, text in sorted(texts.items())]
        self._last(b"".join(events) + self._frames.error(error))

    def forget(self, index: int) -> bool:
        if index in self._named:
            return False
        self._waiting.pop(index, None)
        return True

    def _first(self, index: int) -> bytes:
        if index in self._named:
            return b""
        self._named.add(index)
        return self._frames.first(index)

    def _write(self, data: bytes) -> None:
        framed = chunk(data) if self._chunked else data
        if not self.begun:
            self.begun = True
            framed = self._head + framed
        self._send(framed)

    def _last(self, data: bytes) -> None:
        self._write(data)
        if self._chunked:
            self._send(LAST_CHUNK)

    def _send(self, data: bytes) -> None:
        """uvloop raises where asyncio is silent: a closed transport takes no write."""
        if self._transport.is_closing():
            self.has_left = True
            self._transport.abort()  # it need not wait for what the client will never read
        else:
            self._transport.write(data)
