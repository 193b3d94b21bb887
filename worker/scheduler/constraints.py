"""Which sampled rows of a step are bound by a grammar, and when the masks for them can be known.

A step is issued before the tokens that it continues have come back: its forward pass does not need them. Its masks do,
so they follow it, as a message of their own, once the last token of each bound request is here:

    step n --------------> forward ------------> sample
                result n-1 --> masks n ------------^

No step is issued while masks are owed, so in a rank's ring they come right after their step.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from octavo.worker.messages.output import Output
from octavo.worker.messages.step import Masks, Step


class Constraint(Protocol):
    """A request's place in its grammar."""

    def take(self, ids: Sequence[int]) -> None: ...

    @property
    def broken(self) -> bool:
        """It does not know any more what may follow."""


M = TypeVar("M", bound=Constraint)


class Constraints(Generic[M]):
    """fill: rows of bits for these matchers; None stands for one that has ended since, whose token is not shown."""

    def __init__(self, fill: Callable[[Sequence[M | None]], bytes]) -> None:
        self._fill = fill
        self._matchers: dict[int, M] = {}  # by the request's key
        self._in_flight: deque[tuple[int, tuple[int, ...]]] = deque()  # steps with bound rows: number, keys
        self._owed: tuple[int, tuple[int, ...]] | None = None

    @property
    def bound(self) -> bool:
        """Some request is bound."""
        return bool(self._matchers)

    @property
    def owing(self) -> bool:
        """Masks of the newest step are still to be sent."""
        return self._owed is not None

    def bind(self, key: int, matcher: M) -> None:
        self._matchers[key] = matcher

    def drop(self, key: int) -> None:
        """It has ended, if it was there."""
        self._matchers.pop(key, None)

    def mark(self, step: Step, keys: Sequence[int]) -> Step:
        """The step, just scheduled, with its bound entries named. keys: of its sampled rows."""
        bound = tuple(entry for entry, key in enumerate(keys) if key in self._matchers)
        if not bound:
            return step
        self._owed = (step.number, tuple(keys[entry] for entry in bound))
        self._in_flight.append(self._owed)
        return replace(step, sample=replace(step.sample, masked=bound))

    def masks(self) -> Masks | None:
        """The owed masks, once every token that they depend on is here; they are owed no longer then."""
        if self._owed is None:
            return None
        number, keys = self._owed
        waiting = {key for earlier, some in self._in_flight if earlier != number for key in some}
        if any(key in waiting and key in self._matchers for key in keys):
            return None
        self._owed = None
        return Masks(number, self._fill([self._matchers.get(key) for key in keys]))

    def returned(self, number: int, outputs: Iterable[Output]) -> list[int]:
        """The result of step `number` is here, and what it says. Keys of requests that cannot be bound any longer: what
        they say now is not to be believed, an end least of all."""
        if not self._matchers and not self._in_flight:
            return []
        broken = []
        if self._in_flight and self._in_flight[0][0] == number:
            self._in_flight.popleft()
        for output in outputs:
            matcher = self._matchers.get(output.key)
            if matcher is None:
                continue
            if not output.finish:
                matcher.take(output.ids)
            if matcher.broken:
                broken.append(output.key)
            if matcher.broken or output.finish:
                del self._matchers[output.key]
        return broken
