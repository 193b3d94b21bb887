"""Answers with details, whole and streamed."""

import asyncio
from collections.abc import Mapping

from octavo.router.answers.answers import BUFFER_BYTES, MERGED_CHARACTERS, Tally
from octavo.router.answers.detailed import DetailedPiece
from octavo.router.answers.detailed_frames import DetailedChoice, DetailedChunkFormatter, DetailOptions, detailed_whole
from octavo.router.answers.formatters.frames import Identity, Usage
from octavo.router.answers.plain_answers import AnswerStream, WholeAnswer
from octavo.router.jobs.generation import RequestError


class DetailedWhole(WholeAnswer):
    """Collects an answer; `render` makes the body and may take milliseconds, so it runs in a thread."""

    def __init__(self, identity: Identity, options: DetailOptions) -> None:
        super().__init__(identity)
        self._options = options
        self._parts: dict[int, DetailedPiece] = {}
        self._detailed: list[DetailedChoice] = []
        self._usage = Usage(0, 0, 0)

    def part(self, index: int, part: DetailedPiece) -> None:
        if index in self._parts:
            self._parts[index].add(part)
        else:
            self._parts[index] = part

    def last(self, index: int, part: DetailedPiece, reason: str) -> None:
        self.part(index, part)
        self._detailed.append(DetailedChoice(index, self._parts.pop(index), reason))

    def release(self, index: int, part: DetailedPiece) -> None:
        """The handler answers with the error."""

    def end(self, usage: Usage) -> None:
        self._usage = usage

    def render(self) -> bytes:
        choices = sorted(self._detailed, key=lambda choice: choice.index)
        return detailed_whole(self._identity, self._options, choices, self._usage)

    def forget(self, index: int) -> bool:
        self._parts.pop(index, None)
        return True


class DetailedStream(AnswerStream):
    """Writes an event for each piece; pieces for a client that does not read are merged."""

    def __init__(
        self, transport: asyncio.Transport, head: bytes, chunked: bool, frames: DetailedChunkFormatter, tally: Tally
    ) -> None:
        super().__init__(transport, head, chunked, frames, tally)
        self._detailed = frames
        self._kept: dict[int, DetailedPiece] = {}

    def part(self, index: int, part: DetailedPiece) -> None:
        whole = self._with_kept(index, part)
        if self._transport.get_write_buffer_size() <= BUFFER_BYTES:
            if events := self._first(index) + self._events(index, whole):
                self._write(events)
            return
        self._tally.merged_writes += 1
        self._kept[index] = whole
        if whole.size > MERGED_CHARACTERS:
            self._transport.abort()

    def last(self, index: int, part: DetailedPiece, reason: str) -> None:
        whole = self._with_kept(index, part)
        self._write(self._first(index) + self._detailed.last(index, whole, reason))

    def release(self, index: int, part: DetailedPiece) -> None:
        if self.begun:
            self.part(index, part)

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        if not self.begun:
            return  # the handler answers with the error's status
        kept = b"".join(self._detailed.part(index, part) for index, part in self._kept.items())
        self._last(kept + self._detailed.error(error))

    def forget(self, index: int) -> bool:
        if index in self._named:
            return False
        self._kept.pop(index, None)
        return True

    def _events(self, index: int, part: DetailedPiece) -> bytes:
        return self._detailed.part(index, part)

    def _with_kept(self, index: int, part: DetailedPiece) -> DetailedPiece:
        kept = self._kept.pop(index, None)
        if kept is None:
            return part
        kept.add(part)
        return kept
