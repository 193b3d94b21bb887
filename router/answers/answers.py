"""The sinks of one request's jobs: they turn tokens into an answer.

    Dispatcher --ids--> Generation (detokenise, stop strings) --text--> AnswerWriter

All of it runs inside the call that brought the tokens: no task wakes up for a token. `Answer.done` resolves once, when
every generation has ended or one has failed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from octavo.router.answers.formatters.frames import Usage
from octavo.router.jobs.generation import FAILED, LENGTH, Handle, RequestError
from octavo.router.jobs.refusals import engine_failed
from octavo.router.text.detokenise import Detokeniser
from octavo.router.text.stops import StopFinder

BUFFER_BYTES = 65_536  # written to a client that does not read; what comes then is merged
MERGED_CHARACTERS = 4 << 20  # beyond it the client is cut off


class Tally:
    """Running totals of a process, for metrics: plain integers, as they change with every token."""

    __slots__ = ("cached_tokens", "completion_tokens", "merged_writes", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.merged_writes = 0


class AnswerWriter(Protocol):
    """Receives the text of one request's generations."""

    def text(self, index: int, text: str) -> None:
        """Some more text, never empty."""

    def finish(self, index: int, text: str, reason: str) -> None:
        """The last text, perhaps empty."""

    def end(self, usage: Usage) -> None:
        """Every generation has finished."""

    def failed(self, error: RequestError, held: Mapping[int, str]) -> None:
        """The request has failed. held: text that stop strings held back, by index; it belongs to the answer."""

    def forget(self, index: int) -> bool:
        """Drop one generation's text because it starts again; False when some of it has reached the client."""


class Answer:
    """The generations of one HTTP request. done: None, or the error that ended it."""

    def __init__(
        self, writer: AnswerWriter, prompt_tokens: int, tally: Tally, on_first: Callable[[], None], copies: int = 1
    ) -> None:
        """copies: generations of each prompt, which is counted once."""
        self.done: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        self.writer = writer
        self.tally = tally
        self.handles: list[Handle] = []
        self._prompt_tokens = prompt_tokens
        self._copies = copies
        self._generations: list[Generation] = []
        self._left = 0
        self._on_first: Callable[[], None] | None = on_first

    def generation(self, detokeniser: Callable[[], Detokeniser], stop: Sequence[str]) -> "Generation":
        return self.join(Generation(self, self.joined, detokeniser, stop))

    @property
    def joined(self) -> int:
        """Number of generations, which is the index of the next."""
        return len(self._generations)

    def join(self, generation: "Generation") -> "Generation":
        self._generations.append(generation)
        self._left += 1
        return generation

    def begun(self) -> None:
        if self._on_first is not None:
            self._on_first()
            self._on_first = None

    def finished(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.done.done():
            self.writer.end(self.usage())
            self.done.set_result(None)

    def usage(self) -> Usage:
        completion = sum(generation.count for generation in self._generations)
        cached = sum(generation.cached for generation in self._generations[:: self._copies])
        return Usage(self._prompt_tokens, completion, cached)

    def failed(self, error: RequestError) -> None:
        if not self.done.done():
            try:
                held = {generation.index: text for generation in self._generations if (text := generation.held())}
                self.writer.failed(error, held)
            finally:
                self.done.set_result(error)
                self.cancel()

    def cancel(self) -> None:
        """Cancel the jobs that still run; nothing more is written."""
        for generation in self._generations:
            generation.over = True
        for handle in self.handles:
            handle.cancel()


class Generation:
    """The Sink of one job: detokenizes, and finds stop strings."""

    __slots__ = ("_answer", "_detokeniser", "_finder", "_new_detokeniser", "_stop", "cached", "count", "index", "over")

    def __init__(self, answer: Answer, index: int, detokeniser: Callable[[], Detokeniser], stop: Sequence[str]) -> None:
        self._answer = answer
        self._new_detokeniser = detokeniser
        self._stop = stop
        self.index = index
        self.over = False
        self._begin()

    def _begin(self) -> None:
        self._detokeniser = self._new_detokeniser()
        self._finder = StopFinder(self._stop) if self._stop else None
        self.count = 0
        self.cached = 0

    def restart(self) -> bool:
        if self.over or not self._answer.writer.forget(self.index):
            return False
        self._begin()
        return True

    def scores(self, tokens: bytes, prompt: bytes) -> None:
        raise AssertionError("a plain generation asks for no log-probabilities")

    def tokens(self, ids: Sequence[int], finish: int, cached: int) -> None:
        if self.over:
            return
        answer = self._answer
        answer.begun()
        if cached:
            self.cached += cached
            answer.tally.cached_tokens += cached
        if finish == FAILED:
            self.failed(engine_failed())
            return
        if self._finder is not None:
            self._search(self._finder, ids, finish)
            return
        self.count += len(ids)
        answer.tally.completion_tokens += len(ids)
        text = self._detokeniser.push(ids)
        if finish:
            self._finish(text + self._detokeniser.flush(), finish)
        elif text:
            answer.writer.text(self.index, text)

    def _search(self, finder: StopFinder, ids: Sequence[int], finish: int) -> None:
        """Id by id: the token count must not depend on how many ids one message carried."""
        shown = ""
        for token in ids:
            self.count += 1
            self._answer.tally.completion_tokens += 1
            text, hit = finder.push(self._detokeniser.push((token,)))
            shown += text
            if hit:
                self._stopped(shown)
                return
        if finish:
            text, hit = finder.push(self._detokeniser.flush())
            if hit:
                self._stopped(shown + text)
            else:
                self._finish(shown + text + finder.flush(), finish)
        elif shown:
            self._answer.writer.text(self.index, shown)

    def _stopped(self, text: str) -> None:
        """A stop string is complete: the job is cancelled, because the engine does not search for stop strings."""
        self._end(text, "stop")
        self._cancel()

    def _cancel(self) -> None:
        handles = self._answer.handles
        if self.index < len(handles):
            handles[self.index].cancel()

    def _finish(self, text: str, finish: int) -> None:
        self._end(text, "length" if finish == LENGTH else "stop")

    def _end(self, text: str, reason: str) -> None:
        self.over = True
        self._answer.writer.finish(self.index, text, reason)
        self._answer.finished()

    def failed(self, error: RequestError) -> None:
        """Fails the whole request, also when this generation itself has ended."""
        self._answer.failed(error)
        self.over = True

    def held(self) -> str:
        """Text held back as the beginning of a stop string. An incomplete character is dropped."""
        return self._finder.flush() if self._finder is not None and not self.over else ""
