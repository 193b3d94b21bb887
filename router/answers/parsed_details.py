"""Answers with details whose text is parsed: a chat with log-probabilities beside tools or reasoning.

    DetailedGeneration --DetailedPiece--> ParsedDetailedWhole | ParsedDetailedStream --parts of the message-->

Every generated token has its details, in order, also the tokens of reasoning, markers and calls. A stream sends them
with the text that the tokens show, or alone while they show none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from octavo.router.answers.answers import Tally
from octavo.router.answers.detailed import DetailedPiece
from octavo.router.answers.detailed_answers import DetailedStream, DetailedWhole
from octavo.router.answers.detailed_frames import DetailedChoice, DetailedChunkFormatter, DetailOptions
from octavo.router.answers.formatters.chat_parts import content_of, message
from octavo.router.answers.formatters.frames import Identity
from octavo.router.answers.parsed_answers import Parser, reason_of
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.parsers.answer_parser import MessagePart as Shown


class ParsedDetailedWhole(DetailedWhole):
    """Collects, and parses each text at its end."""

    def __init__(self, identity: Identity, options: DetailOptions, parser: Parser) -> None:
        super().__init__(identity, options)
        self._new = parser

    def last(self, index: int, part: DetailedPiece, reason: str) -> None:
        self.part(index, part)
        whole, parser = self._parts.pop(index), self._new()
        shown = [*parser.push(whole.text), *parser.finish()]
        content = content_of(shown)
        choice = DetailedChoice(index, replace(whole, text=content), reason_of(parser, reason), message(shown, content))
        self._detailed.append(choice)


class ParsedDetailedStream(DetailedStream):
    """Parses text as it comes; text that waits for a slow client has not been parsed yet."""

    def __init__(
        self, transport: asyncio.Transport, head: bytes, chunked: bool, frames: DetailedChunkFormatter, tally: Tally,
        parser: Parser,
    ) -> None:  # fmt: skip
        super().__init__(transport, head, chunked, frames, tally)
        self._new = parser
        self._parsers: dict[int, AnswerParser] = {}

    def last(self, index: int, part: DetailedPiece, reason: str) -> None:
        whole, parser = self._with_kept(index, part), self._parser(index)
        del self._parsers[index]
        shown = [*parser.push(whole.text), *parser.finish()]
        end = self._detailed.ended(index, whole.usage, reason_of(parser, reason))
        self._write(self._first(index) + self._detailed.shown(index, whole, shown) + end)

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        if self.begun:
            for index in sorted({*self._parsers, *self._kept}):
                kept = self._with_kept(index, DetailedPiece())
                self._show(index, kept, [*self._parser(index).push(kept.text), *self._parser(index).finish()])
        super().failed(error, held)

    def forget(self, index: int) -> bool:
        if not super().forget(index):
            return False
        self._parsers.pop(index, None)
        return True

    def _events(self, index: int, part: DetailedPiece) -> bytes:
        return self._detailed.shown(index, part, self._parser(index).push(part.text))

    def _show(self, index: int, part: DetailedPiece, shown: Sequence[Shown]) -> None:
        events = self._detailed.shown(index, part, shown)
        if events:
            self._write(self._first(index) + events)

    def _parser(self, index: int) -> AnswerParser:
        if index not in self._parsers:
            self._parsers[index] = self._new()
        return self._parsers[index]
