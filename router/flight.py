"""One job on its way through the fleet, across as many streams as it takes.

queued --> under way on a stream --> over
   ^             |
   +-- lost -----+   while nothing has reached the client
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from octavo.router import refusals
from octavo.router.admission import Entry
from octavo.router.generation import FAILED, NOT_FINISHED, Job, RequestError, Sink

log = logging.getLogger(__name__)


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
    entry: "Entry[Flight] | None" = None
    carrier: Carrier | None = None
    number: int = 0
    attempts: int = 0
    produced: int = 0
    lost: set[str] = field(default_factory=set)
    avoid: set[str] = field(default_factory=set)
    over: bool = False

    def deliver(self, ids: Sequence[int], finish: int, cached: int) -> None:
        """Some ids from the engine. A sink that raises ends its own request and no other."""
        self.produced += len(ids)
        try:
            if finish == FAILED:
                self.sink.failed(refusals.engine_failed())
            else:
                self.sink.tokens(ids, finish, cached)
        except Exception:
            log.exception("request %s: its reader failed; the request is ended", self.job.id)
            if finish == NOT_FINISHED:
                self.fail(refusals.broken_reader())
                raise BrokenSink from None

    def score(self, tokens: bytes, prompt: bytes) -> None:
        """Log-probabilities that go before the next `deliver`."""
        try:
            self.sink.scores(tokens, prompt)
        except Exception:
            log.exception("request %s: its reader failed; the request is ended", self.job.id)
            self.fail(refusals.broken_reader())
            raise BrokenSink from None

    def fail(self, error: RequestError) -> None:
        try:
            self.sink.failed(error)
        except Exception:
            log.exception("request %s: its reader could not be told: %s", self.job.id, error.message)

    def can_restart(self) -> bool:
        """Whether nothing has reached the client; then it begins anew."""
        try:
            restarted = not self.produced or self.sink.restart()
        except Exception:
            log.exception("request %s: its reader cannot begin again; the request is ended", self.job.id)
            restarted = False
        if restarted:
            self.produced = 0
        return restarted


class BrokenSink(Exception):
    """A reader raised; its flight must be cancelled."""
