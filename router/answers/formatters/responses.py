"""Answers of /v1/responses: one object, or the typed events that build it up.

    created  in_progress  events of each item *  completed | incomplete          failed, at any point

Each event has its name twice, in the event line and as `type`, and the next sequence number. The last one holds the
whole answer, and no [DONE] follows.
"""

from collections.abc import Sequence

import orjson

from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters.formatter import Choice, Json
from octavo.router.answers.formatters.message_parts import kept
from octavo.router.answers.formatters.response_object import OutputItems, ResponseEvent, ResponseObject, status_of
from octavo.router.jobs.generation import RequestError

TEXT = "response.output_text.delta"


class ResponseFormatter:
    """One answer, which has one generation."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._items = OutputItems(response.key)
        self._count = 0
        self._reason = ""
        self._head = b""  # of each delta of the open message: all of it but the number and the text

    def first(self, index: int) -> bytes:
        begun: Json = {"response": self._response.begun()}
        return self._events([("response.created", begun), ("response.in_progress", begun)])

    def text(self, index: int, text: str) -> bytes:
        if self._items.place is None:
            begun = self._events(self._items.begin_message())
            head = orjson.dumps({"type": TEXT} | self._items.place | {"logprobs": []})[:-1]  # type: ignore[operator]
            self._head = f"event: {TEXT}\ndata: ".encode() + head + b',"sequence_number":'
            return begun + self.text(index, text)
        self._items.add(text)
        number = self._count
        self._count += 1
        return b'%b%d,"delta":%b}\n\n' % (self._head, number, orjson.dumps(text))

    def delta(self, index: int, delta: Delta) -> bytes:
        if delta.parts is None:
            return self.text(index, delta.text)
        return b"".join([self._events(self._items.part(part)) for part in delta.parts])

    def finish(self, index: int, delta: Delta, reason: str) -> bytes:
        last = b"" if delta.is_empty else self.delta(index, delta)
        self._reason = reason
        return last + self._events(self._items.finish(status_of(reason)))

    def end(self, usage: Usage) -> bytes:
        whole = self._response.ended(self._items.done, self._reason, usage)
        return self._events([(f"response.{whole['status']}", {"response": whole})])

    def error(self, error: RequestError) -> bytes:
        self._items.cut()
        return self._events([("response.failed", {"response": self._response.failed(self._items.done, error)})])

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        (choice,) = choices
        if choice.delta.text:
            self._items.text(choice.delta.text)
        for part in kept(choice.delta.parts or ()):
            self._items.part(part)
        self._items.finish(status_of(choice.finish_reason))
        return orjson.dumps(self._response.ended(self._items.done, choice.finish_reason, usage))

    def _events(self, events: Sequence[ResponseEvent]) -> bytes:
        return b"".join([self._event(kind, body) for kind, body in events])

    def _event(self, kind: str, body: Json) -> bytes:
        number = self._count
        self._count += 1
        data = orjson.dumps({"type": kind, "sequence_number": number} | body)
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
