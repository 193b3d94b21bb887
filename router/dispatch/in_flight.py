"""One job on its way through the fleet, across as many streams as it takes.

queued --> under way on a stream --> over
   ^             |
   +-- lost -----+   while nothing has reached the client
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from octavo.router.dispatch.rules.admission import Entry
from octavo.router.errors import RouterError
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs import refusals
from octavo.router.jobs.generation import FAILED, Job, RequestError, Sink


class Carrier(Protocol):
    """The stream a flight is under way on."""

    def cancel(self, number: int) -> None:
        """Tell the leader to drop the request of this number."""


@dataclass(slots=True, eq=False)
class Flight:
    """lost: incarnations that ended under it. avoid: leaders that refused it. produced: ids given to the sink."""

    job: Job
    sink: Sink
    hashes: list[bytes]
    errors: InternalErrors
    entry: "Entry[Flight] | None" = None
    carrier: Carrier | None = None
    number: int = 0
    attempts: int = 0
    produced: int = 0
    lost: set[str] = field(default_factory=set)
    avoid: set[str] = field(default_factory=set)
    over: bool = False

    def deliver(self, ids: Sequence[int], finish: int, cached: int) -> None:
        """Some ids from the engine. A sink that raises ends its own request and no other: raises BrokenSink."""
        self.produced += len(ids)
        try:
            if finish == FAILED:
                self.sink.failed(refusals.engine_failed())
            else:
                self.sink.tokens(ids, finish, cached)
        except Exception as error:
            self._break(error)

    def score(self, tokens: bytes, prompt: bytes) -> None:
        """Log-probabilities that go before the next `deliver`. Raises as it does."""
        try:
            self.sink.scores(tokens, prompt)
        except Exception as error:
            self._break(error)

    def fail(self, error: RequestError) -> None:
        with self.errors.contained("request %s: the reader, told of %s,", self.job.id, error.code):
            self.sink.failed(error)

    def can_restart(self) -> bool:
        """Whether nothing has reached the client; then it begins anew."""
        restarted = not self.produced
        if not restarted:
            with self.errors.contained("request %s: the reader, told to begin anew,", self.job.id):
                restarted = self.sink.restart()
        if restarted:
            self.produced = 0
        return restarted

    def _break(self, error: Exception) -> NoReturn:
        self.errors.note(error, "request %s: the reader, whose request ends here,", self.job.id)
        self.fail(refusals.broken_reader())
        raise BrokenSink from None


class BrokenSink(RouterError):
    """A reader raised, and has been told of the end of its request; its flight must be cancelled."""
