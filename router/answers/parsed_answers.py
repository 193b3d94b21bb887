"""The two forms of a chat answer that is more than content: between a Generation and WholeAnswer or AnswerStream.

Generation --text--> ParsedWhole | ParsedStream --parts--> WholeAnswer | AnswerStream
"""

from collections.abc import Callable, Mapping

from octavo.router.answers.answers import MERGED_CHARACTERS
from octavo.router.answers.formatters.frames import Usage
from octavo.router.answers.plain_answers import AnswerStream, WholeAnswer
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import AnswerParser, Arguments, MessagePart, Reasoning
from octavo.router.parsers.tools.events import Content

Parser = Callable[[], AnswerParser]


class ParsedWhole:
    """An Outlet: collects the parts of each message."""

    def __init__(self, whole: WholeAnswer, parser: Parser) -> None:
        self._whole = whole
        self._new = parser
        self._parsers: dict[int, AnswerParser] = {}
        self._parts: dict[int, list[MessagePart]] = {}

    def text(self, index: int, text: str) -> None:
        self._parts.setdefault(index, []).extend(self._parser(index).push(text))

    def finish(self, index: int, text: str, reason: str) -> None:
        parser = self._parser(index)
        parts = [*self._parts.pop(index, ()), *parser.push(text), *parser.finish()]
        self._whole.parts(index, parts, reason_of(parser, reason))

    def end(self, usage: Usage) -> None:
        self._whole.end(usage)

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        self._whole.failed(error, held)

    def forget(self, index: int) -> bool:
        self._parsers.pop(index, None)
        self._parts.pop(index, None)
        return self._whole.forget(index)

    def _parser(self, index: int) -> AnswerParser:
        if index not in self._parsers:
            self._parsers[index] = self._new()
        return self._parsers[index]


class ParsedStream:
    """An Outlet: writes parts as they are found. For a client that does not read they wait here, merged and bounded."""

    def __init__(self, stream: AnswerStream, parser: Parser) -> None:
        self._stream = stream
        self._new = parser
        self._parsers: dict[int, AnswerParser] = {}
        self._waiting: dict[int, list[MessagePart]] = {}
        self._held = 0  # characters that wait
        self._finished: set[int] = set()

    def text(self, index: int, text: str) -> None:
        parts = self._parser(index).push(text)
        if not parts:
            return
        if self._stream.slow:
            self._hold(index, parts)
        else:
            self._send(index, parts)

    def finish(self, index: int, text: str, reason: str) -> None:
        parser = self._parser(index)
        self._finished.add(index)
        self._send(index, [*parser.push(text), *parser.finish()])
        self._stream.finish(index, "", reason_of(parser, reason))

    def end(self, usage: Usage) -> None:
        self._stream.end(usage)

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        if self._stream.begun:
            for index, parser in self._parsers.items():
                if index not in self._finished:
                    self._send(index, [*parser.push(held.get(index, "")), *parser.finish()])
        self._stream.failed(error, {})

    def forget(self, index: int) -> bool:
        if not self._stream.forget(index):
            return False
        self._parsers.pop(index, None)
        self._waiting.pop(index, None)
        return True

    def _parser(self, index: int) -> AnswerParser:
        if index not in self._parsers:
            self._parsers[index] = self._new()
        return self._parsers[index]

    def _hold(self, index: int, parts: list[MessagePart]) -> None:
        self._waiting[index] = _merged([*self._waiting.get(index, ()), *parts])
        self._held += sum(_size(part) for part in parts)
        self._stream.held(self._held > MERGED_CHARACTERS)

    def _send(self, index: int, parts: list[MessagePart]) -> None:
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            parts = _merged([*waiting, *parts])
            self._held -= sum(_size(part) for part in waiting)
        if parts:
            self._stream.parts(index, parts)


def reason_of(parser: AnswerParser, reason: str) -> str:
    """A call that is whole is why the model stopped; an answer that was cut says so."""
    return parser.reason if parser.called and reason == "stop" else reason


def _merged(parts: list[MessagePart]) -> list[MessagePart]:
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
