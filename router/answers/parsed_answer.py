"""The stage of the line that finds reasoning and calls in a chat's text, each generation with a parser of its own.

Every generated token keeps its details, in order, also the tokens of reasoning, markers and calls: they go with the
parts that the text shows, or alone while it shows none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from octavo.router.answers.delta import AnswerWriter, Delta, Usage
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import AnswerParser


class ParsedAnswer:
    """An AnswerWriter before another one."""

    def __init__(self, writer: AnswerWriter, new_parser: Callable[[], AnswerParser]) -> None:
        self._writer = writer
        self._new = new_parser
        self._parsers: dict[int, AnswerParser] = {}  # of generations that go on

    def text(self, index: int, text: str) -> None:
        if parts := self._parser(index).push(text):
            self._writer.delta(index, Delta(parts=parts))

    def delta(self, index: int, delta: Delta) -> None:
        self._writer.delta(index, replace(delta, text="", parts=self._parser(index).push(delta.text)))

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        parser = self._parser(index)
        last = self._last(index, delta)
        # A call that is whole is why the model stopped; an answer that was cut says so.
        self._writer.finish(index, last, parser.reason if parser.called and reason == "stop" else reason)

    def end(self, usage: Usage) -> None:
        self._writer.end(usage)

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        open_answers = sorted({*self._parsers, *held})
        self._writer.failed(error, {index: self._last(index, held.get(index, Delta())) for index in open_answers})

    def forget(self, index: int) -> bool:
        if not self._writer.forget(index):
            return False
        self._parsers.pop(index, None)
        return True

    def _last(self, index: int, delta: Delta) -> Delta:
        parser = self._parser(index)
        del self._parsers[index]
        return replace(delta, text="", parts=[*parser.push(delta.text), *parser.finish()])

    def _parser(self, index: int) -> AnswerParser:
        if index not in self._parsers:
            self._parsers[index] = self._new()
        return self._parsers[index]
