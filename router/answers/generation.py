"""The sink of one job: token ids become text, as far as no stop string is found in it."""

from collections.abc import Callable, Sequence

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import Delta
from octavo.router.jobs.generation import FAILED, LENGTH, RequestError
from octavo.router.jobs.refusals import engine_failed
from octavo.router.text.detokenise import Detokeniser
from octavo.router.text.stops import StopFinder


class Generation:
    """An answer of plain text."""

    __slots__ = ("_answer", "_detokeniser", "_finder", "_new_detokeniser", "_stop", "cached", "count", "index", "over")

    def __init__(self, answer: Answer, detokeniser: Callable[[], Detokeniser], stop: Sequence[str]) -> None:
        """It must join the answer."""
        self._answer = answer
        self._new_detokeniser = detokeniser
        self._stop = stop
        self.index = answer.joined
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
        if not self._goes_on(finish, cached):
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

    def _goes_on(self, finish: int, cached: int) -> bool:
        """Take what comes beside the ids; False when the engine has failed, and so has the request."""
        answer = self._answer
        answer.begun()
        if cached:
            self.cached += cached
            answer.tally.cached_tokens += cached
        if finish == FAILED:
            self.failed(engine_failed())
        return finish != FAILED

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
        self._answer.writer.finish(self.index, Delta(text), reason)
        self._answer.finished()

    def failed(self, error: RequestError) -> None:
        """Fails the whole request, also when this generation itself has ended."""
        self._answer.failed(error)
        self.over = True

    def held(self) -> Delta | None:
        """Text held back as the beginning of a stop string. An incomplete character is dropped."""
        text = self._finder.flush() if self._finder is not None and not self.over else ""
        return Delta(text) if text else None
