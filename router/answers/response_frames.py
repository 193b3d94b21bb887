"""Answers of /v1/responses: one object, or the typed events that build it up.

    created  in_progress  events of each item *  completed | incomplete          failed, at any point

Each event has its name twice, in the event line and as `type`, and the next sequence number. The last one holds the
whole answer, and no [DONE] follows.
"""

from collections.abc import Sequence

import orjson

from octavo.router.answers.formatters.chat_parts import kept
from octavo.router.answers.formatters.frames import Identity, Usage
from octavo.router.answers.formatters.response_object import Json, Output, ResponseEvent, ResponseObject, status_of
from octavo.router.answers.plain_answers import WholeAnswer
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import MessagePart

TEXT = "response.output_text.delta"


class ResponseEventFormatter:
    """The events of one stream: what FrameWriter is for chats and completions."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._output = Output(response.key)
        self._count = 0
        self._reason = ""
        self._head = b""  # of each delta of the open message: all of it but the number and the text

    def first(self, index: int) -> bytes:
        begun: Json = {"response": self._response.begun()}
        return self._events([("response.created", begun), ("response.in_progress", begun)])

    def text(self, index: int, text: str) -> bytes:
        if self._output.place is None:
            begun = self._events(self._output.begin_message())
            head = orjson.dumps({"type": TEXT} | self._output.place | {"logprobs": []})[:-1]  # type: ignore[operator]
            self._head = f"event: {TEXT}\ndata: ".encode() + head + b',"sequence_number":'
            return begun + self.text(index, text)
        self._output.add(text)
        number = self._count
        self._count += 1
        return b'%b%d,"delta":%b}\n\n' % (self._head, number, orjson.dumps(text))

    def delta(self, index: int, part: MessagePart) -> bytes:
        return self._events(self._output.part(part))

    def finish(self, index: int, text: str, reason: str) -> bytes:
        last = self.text(index, text) if text else b""
        self._reason = reason
        return last + self._events(self._output.finish(status_of(reason)))

    def end(self, usage: Usage) -> bytes:
        whole = self._response.ended(self._output.done, self._reason, usage)
        return self._events([(f"response.{whole['status']}", {"response": whole})])

    def error(self, error: RequestError) -> bytes:
        self._output.cut()
        return self._events([("response.failed", {"response": self._response.failed(self._output.done, error)})])

    def _events(self, events: Sequence[ResponseEvent]) -> bytes:
        return b"".join([self._event(kind, body) for kind, body in events])

    def _event(self, kind: str, body: Json) -> bytes:
        number = self._count
        self._count += 1
        data = orjson.dumps({"type": kind, "sequence_number": number} | body)
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


class WholeResponse(WholeAnswer):
    """Collects, as for the other endpoints; only the body is another."""

    def __init__(self, identity: Identity, response: ResponseObject) -> None:
        super().__init__(identity)
        self._response = response
        self._output = Output(response.key)
        self._reason = ""

    def finish(self, index: int, text: str, reason: str) -> None:
        whole = "".join([*self._texts.pop(index, ()), text])
        if whole:
            self._output.text(whole)
        self._ended(reason)

    def parts(self, index: int, parts: Sequence[MessagePart], reason: str) -> None:
        for part in kept(parts):
            self._output.part(part)
        self._ended(reason)

    def _ended(self, reason: str) -> None:
        self._output.finish(status_of(reason))
        self._reason = reason

    def end(self, usage: Usage) -> None:
        self.body = orjson.dumps(self._response.ended(self._output.done, self._reason, usage))
