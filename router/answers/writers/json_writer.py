"""An answer that is sent at once, as one JSON body."""

from collections.abc import Mapping

from octavo.router.answers.delta import Delta, Usage, merged
from octavo.router.answers.formatters.formatter import Choice, Formatter
from octavo.router.jobs.generation import RequestError


class JsonWriter:
    """An AnswerWriter that collects. `body` may take milliseconds where there are log-probabilities."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter
        self._texts: dict[int, list[str]] = {}
        self._deltas: dict[int, list[Delta]] = {}
        self._choices: list[Choice] = []
        self._usage = Usage(0, 0, 0)

    def text(self, index: int, text: str) -> None:
        self._texts.setdefault(index, []).append(text)

    def delta(self, index: int, delta: Delta) -> None:
        self._deltas.setdefault(index, []).append(delta)

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        if (texts := self._texts.pop(index, None)) is not None:
            delta.text = "".join([*texts, delta.text])
        elif (deltas := self._deltas.pop(index, None)) is not None:
            delta = merged([*deltas, delta])
        self._choices.append(Choice(index, delta, reason))

    def end(self, usage: Usage) -> None:
        self._usage = usage

    def body(self) -> bytes:
        """Once it has ended."""
        return self._formatter.whole(sorted(self._choices, key=lambda choice: choice.index), self._usage)

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        """The handler answers with the error."""

    def forget(self, index: int) -> bool:
        self._texts.pop(index, None)
        self._deltas.pop(index, None)
        return True
