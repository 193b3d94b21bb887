"""A job that a group runs or that waits for one, across retries.

queued --> running on a stream --> over
   ^             |
   +-- lost -----+   while nothing has reached the client
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from octavo.router.dispatch.rules.admission import QueueEntry
from octavo.router.errors import RouterError
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs import refusals
from octavo.router.jobs.generation import FAILED, Job, RequestError, Sink


class CarryingStream(Protocol):
    """The stream that a job runs on."""

    def cancel(self, number: int) -> None:
        """Cancel the request of this number at the leader."""


@dataclass(slots=True, eq=False)
class InFlightJob:
    """lost: incarnations that ended while they ran it. avoid: leaders that refused it. produced: ids given to the
    sink."""

    job: Job
    sink: Sink
    hashes: list[bytes]
    errors: InternalErrors
    entry: "QueueEntry[InFlightJob] | None" = None
    stream: CarryingStream | None = None
    number: int = 0
    attempts: int = 0
    produced: int = 0
    lost: set[str] = field(default_factory=set)
    avoid: set[str] = field(default_factory=set)
    over: bool = False

    def deliver(self, ids: Sequence[int], finish: int, cached: int) -> None:
        """Pass ids from the engine to the sink. A sink that raises ends its own request only. Raises SinkFailed."""
        self.produced += len(ids)
        try:
            if finish == FAILED:
                self.sink.failed(refusals.engine_failed())
            else:
                self.sink.tokens(ids, finish, cached)
        except Exception as error:
            self._break(error)

    def score(self, tokens: bytes, prompt: bytes) -> None:
        """Pass log-probabilities of the next `deliver` to the sink. Raises SinkFailed."""
        try:
            self.sink.scores(tokens, prompt)
        except Exception as error:
            self._break(error)

    def fail(self, error: RequestError) -> None:
        with self.errors.contained("request %s: the sink, given %s,", self.job.id, error.code):
            self.sink.failed(error)

    def can_restart(self) -> bool:
        """Whether nothing has reached the client, so that the job can start again."""
        restarted = not self.produced
        if not restarted:
            with self.errors.contained("request %s: the sink, asked to restart,", self.job.id):
                restarted = self.sink.restart()
        if restarted:
            self.produced = 0
        return restarted

    def _break(self, error: Exception) -> NoReturn:
        self.errors.note(error, "request %s: the sink, whose request ends here,", self.job.id)
        self.fail(refusals.broken_reader())
        raise SinkFailed from None


class SinkFailed(RouterError):
    """A sink raised and its request has failed; its job must be cancelled."""
