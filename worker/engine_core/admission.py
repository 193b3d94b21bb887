"""The way of a request to the scheduler: at once, or, where a grammar binds it, when that has been compiled."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from octavo.worker.engine_core.grammars import GrammarInvalid, Grammars, Masker, Matcher
from octavo.worker.messages.request import Invalid, NewRequest
from octavo.worker.scheduler.constraints import Constraints
from octavo.worker.scheduler.scheduler import Scheduler

FIELD = "response_format"  # what clients call it


class Admission:
    """Requests come in by `submit`; `settled` tells of each, once, whether it has been given to the scheduler."""

    def __init__(self, scheduler: Scheduler, grammars: Grammars, masker: Masker) -> None:
        self.constraints: Constraints[Matcher] = Constraints(masker.fill)
        self._scheduler = scheduler
        self._grammars = grammars
        self._compiling: dict[int, tuple[NewRequest, Future[Matcher]]] = {}
        self._settled: deque[tuple[NewRequest, Invalid | None]] = deque()

    @property
    def compiling(self) -> bool:
        """Requests wait for their grammars, and the scheduler does not have them yet."""
        return bool(self._compiling)

    def submit(self, new: NewRequest) -> None:
        if not new.grammar:
            self._submit(new)
            return
        try:
            self._compiling[new.key] = new, self._grammars.begin(new.grammar)
        except GrammarInvalid as error:
            self._refuse(new, Invalid(FIELD, str(error)))

    def cancel(self, key: int) -> None:
        """The client has gone; no output of it is wanted."""
        if self._compiling.pop(key, None) is not None:
            self._scheduler.refuse()
        self.constraints.drop(key)
        self._scheduler.cancel(key)

    def settled(self) -> Iterator[tuple[NewRequest, Invalid | None]]:
        """Requests that the scheduler has now (None), or that are refused, and why."""
        if self._compiling:
            for new, compiled in [one for one in self._compiling.values() if one[1].done()]:
                del self._compiling[new.key]
                self._bind(new, compiled)
        while self._settled:
            yield self._settled.popleft()

    def _bind(self, new: NewRequest, compiled: Future[Matcher]) -> None:
        try:
            matcher = compiled.result()
        except GrammarInvalid as error:
            self._refuse(new, Invalid(FIELD, str(error)))
            return
        matcher.take(new.generated)
        self.constraints.bind(new.key, matcher)
        if not self._submit(new):
            self.constraints.drop(new.key)

    def _submit(self, new: NewRequest) -> bool:
        try:
            self._scheduler.submit(new)
        except Invalid as error:
            self._settled.append((new, error))
            return False
        self._settled.append((new, None))
        return True

    def _refuse(self, new: NewRequest, why: Invalid) -> None:
        self._scheduler.refuse()
        self._settled.append((new, why))
