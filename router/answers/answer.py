"""One request's answer: its generations, its totals, and its end.

    Dispatcher --ids--> Generation (detokenise, stop strings) --text | Delta--> AnswerWriter

All of it runs inside the call that brought the tokens: no task wakes up for a token. `Answer.done` resolves once, when
every generation has ended or one has failed.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from octavo.router.answers.delta import AnswerWriter, Delta, Usage
from octavo.router.answers.tally import Tally
from octavo.router.jobs.generation import Handle, RequestError


class AnswerGeneration(Protocol):
    """One of an answer's generations."""

    index: int
    count: int
    cached: int
    over: bool

    def held(self) -> Delta | None:
        """What was held back for a stop string, when the request fails; it is over then."""


G = TypeVar("G", bound=AnswerGeneration)


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
        self._generations: list[AnswerGeneration] = []
        self._left = 0
        self._on_first: Callable[[], None] | None = on_first

    @property
    def joined(self) -> int:
        """Number of generations, which is the index of the next."""
        return len(self._generations)

    def join(self, generation: G) -> G:
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
                held = {generation.index: delta for generation in self._generations if (delta := generation.held())}
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
