"""An answer as server-sent events, written as it comes."""

import asyncio
from collections.abc import Mapping

from octavo.router.answers.delta import Delta, Usage, merged
from octavo.router.answers.formatters.formatter import Formatter
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import BUFFER_BYTES, MERGED_CHARACTERS
from octavo.router.jobs.generation import RequestError

LAST_CHUNK = b"0\r\n\r\n"
_MERGED_AT = 256  # pieces that wait


class EventStreamWriter:
    """An AnswerWriter that writes events straight to the transport. Nothing is sent before the first token, so an early
    error has a status.

    A client that does not read: its buffer fills to BUFFER_BYTES, then pieces wait here and go out as one.
    A client that has left: nothing is written, and the end of its connection, which is due, cancels the request.
    """

    def __init__(
        self, transport: asyncio.Transport, head: bytes, chunked: bool, formatter: Formatter, tally: Tally
    ) -> None:
        self.begun = False
        self.has_left = False  # the client, before all was written
        self._transport = transport
        self._head = head
        self._chunked = chunked
        self._formatter = formatter
        self._tally = tally
        self._named: set[int] = set()  # generations whose first event was made
        self._waiting: dict[int, list[Delta]] = {}
        self._waiting_size: dict[int, int] = {}

    def text(self, index: int, text: str) -> None:
        if self._waiting or self._transport.get_write_buffer_size() > BUFFER_BYTES:
            self.delta(index, Delta(text))
            return
        self._write(self._first(index) + self._formatter.text(index, text))

    def delta(self, index: int, delta: Delta) -> None:
        if self._transport.get_write_buffer_size() > BUFFER_BYTES:
            self._hold(index, delta)
            return
        shown = self._first(index) + self._formatter.delta(index, self._with_waiting(index, delta))
        if shown:  # an empty chunk would be the stream's last
            self._write(shown)

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        last = self._with_waiting(index, delta)
        self._write(self._first(index) + self._formatter.finish(index, last, reason))

    def end(self, usage: Usage) -> None:
        self._last(self._formatter.end(usage))

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        if not self.begun:
            return  # the handler answers with the error's status
        events = b""
        for index in sorted({*self._waiting, *held}):
            delta = self._with_waiting(index, held.get(index))
            if not delta.is_empty:
                events += self._first(index) + self._formatter.delta(index, delta)
        self._last(events + self._formatter.error(error))

    def forget(self, index: int) -> bool:
        if index in self._named:
            return False
        self._waiting.pop(index, None)
        self._waiting_size.pop(index, None)
        return True

    def _hold(self, index: int, delta: Delta) -> None:
        self._tally.merged_writes += 1
        waiting = self._waiting.setdefault(index, [])
        waiting.append(delta)
        if len(waiting) > _MERGED_AT:
            waiting[:] = [merged(waiting)]
        size = self._waiting_size[index] = self._waiting_size.get(index, 0) + delta.size
        if size > MERGED_CHARACTERS:
            self._transport.abort()

    def _with_waiting(self, index: int, delta: Delta | None) -> Delta:
        if (waiting := self._waiting.pop(index, None)) is None:
            return delta if delta is not None else Delta()
        del self._waiting_size[index]
        return merged(waiting if delta is None else [*waiting, delta])

    def _first(self, index: int) -> bytes:
        if index in self._named:
            return b""
        self._named.add(index)
        return self._formatter.first(index)

    def _write(self, data: bytes) -> None:
        framed = _chunk(data) if self._chunked else data
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


def _chunk(data: bytes) -> bytes:
    """HTTP/1.1 chunked transfer."""
    return b"%x\r\n%b\r\n" % (len(data), data)
