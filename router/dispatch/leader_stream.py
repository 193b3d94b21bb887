"""One open Serve stream to a leader: sends requests, and delivers each output row to its sink, in the handler of the
message that carried it.

`upstream.py` opens it, reads and writes; `dispatch.py` is the StreamListener of what happens.
"""

import asyncio
from collections import deque
from typing import Protocol

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import wire
from octavo.router.dispatch.in_flight import InFlightJob, SinkFailed
from octavo.router.dispatch.rules.ledger import Ledger
from octavo.router.dispatch.rules.prefix_memory import PrefixMemory
from octavo.router.errors import RouterError
from octavo.router.jobs.generation import Model


class StreamBroken(RouterError):
    """The stream failed; the message has the cause."""


class StreamListener(Protocol):
    """Receives the events of streams; every call is synchronous."""

    def opened(self, stream: "LeaderStream", model: Model) -> None:
        """The stream may carry requests."""

    def credited(self, stream: "LeaderStream") -> None:
        """The stream's credit or load has changed."""

    def on_finished(self, in_flight: InFlightJob) -> None:
        """A job's last row has been delivered."""

    def rejected(self, stream: "LeaderStream", in_flight: InFlightJob, rejected: engine_pb2.Rejected) -> None:
        """The leader refused the job."""

    def draining(self, stream: "LeaderStream") -> None:
        """The leader takes no new requests."""

    def lost(self, stream: "LeaderStream") -> None:
        """The stream is broken; the listener retries its jobs."""


class LeaderStream:
    """An open Serve stream: what its group says of itself, its credit ledger, and its jobs in flight by number."""

    def __init__(self, address: str, welcome: engine_pb2.Welcome, listener: StreamListener) -> None:
        self.address = address
        self.incarnation = welcome.incarnation
        self.digest = welcome.digest
        self.revision = welcome.revision
        self.served_name = welcome.served_name
        self.context_length = welcome.context_length
        self.features = frozenset(welcome.features)
        self.ledger = Ledger()
        self.load = engine_pb2.Load()
        self.prefixes = PrefixMemory(0)
        self.in_flight_jobs: dict[int, InFlightJob] = {}
        self._fresh: set[int] = set()  # jobs without a token yet
        self.is_draining = False
        self.is_closed = False
        self.retired = False  # its address has left the list: nothing new, what is under way goes on
        self.last_cold = 0  # number of the last request with an unknown prompt, as the dispatcher counts; 0: none
        self.last_sent = 0  # of the last request
        self.heard = True
        self.outbox: deque[engine_pb2.FromRouter] = deque()
        self.wake = asyncio.Event()
        self._blocks = 0
        self._block_size = welcome.block_size
        self._listener = listener

    @property
    def accepts_requests(self) -> bool:
        return not self.is_draining and not self.retired and not self.is_closed

    def close(self) -> None:
        """Mark it closed: without credit nothing is sent to it, even by code that still refers to it."""
        self.is_closed = True
        self.ledger = Ledger()

    def submit(self, in_flight: InFlightJob, uncached_tokens: int) -> None:
        """Send a request; the caller has seen that the balance is positive."""
        message = wire.submit(
            self.ledger.next_number, in_flight.job, self.features
        )  # first: a job that makes no message takes no number
        number = self.ledger.send(uncached_tokens)
        in_flight.number, in_flight.stream = number, self
        in_flight.attempts += 1
        self.in_flight_jobs[number] = in_flight
        self._fresh.add(number)
        self._post(message)
        self.prefixes.remember(in_flight.hashes)

    def cancel(self, number: int) -> None:
        self._fresh.discard(number)
        if self.in_flight_jobs.pop(number, None) is not None:
            self._post(wire.cancel(number))

    def send_heartbeat(self) -> None:
        self._post(wire.heartbeat())

    def handle(self, message: engine_pb2.FromEngine) -> None:
        """Act on one message. Raises StreamBroken when it makes no sense."""
        self.heard = True
        kind = message.WhichOneof("kind")
        if message.HasField("credit"):
            self._take_credit(message.credit)
        if kind == "output":
            self._take_rows(message.output)
        elif kind == "rejected":
            self._fresh.discard(message.rejected.number)
            in_flight = self.in_flight_jobs.pop(message.rejected.number, None)
            if in_flight is not None:
                self._listener.rejected(self, in_flight, message.rejected)
        elif kind == "draining" and not self.is_draining:
            self.is_draining = True
            self._listener.draining(self)
        self._listener.credited(self)

    def _post(self, message: engine_pb2.FromRouter) -> None:
        self.outbox.append(message)
        self.wake.set()

    def _take_credit(self, credit: engine_pb2.Credit) -> None:
        self.ledger.credit(credit.seen, credit.tokens)
        if not credit.HasField("load"):
            return
        self.load = credit.load
        if self.load.total_blocks != self._blocks:
            self._blocks = self.load.total_blocks
            self.prefixes = PrefixMemory(self._blocks * self._block_size)

    def _take_rows(self, output: engine_pb2.StepOutput) -> None:
        try:
            rows = wire.rows(output)
        except (ValueError, TypeError) as error:
            raise StreamBroken(f"a StepOutput whose arrays disagree: {error}") from error
        if self._fresh:
            rows = wire.first_rows_first(rows, self._fresh)
        in_flight_jobs = self.in_flight_jobs
        for number, token, finish, cached, scores in rows:
            in_flight = in_flight_jobs.get(number)
            if in_flight is None:
                continue
            if finish:
                del in_flight_jobs[number]
            try:
                if scores is not None:
                    in_flight.score(scores.tokens, scores.prompt)
                in_flight.deliver((token,) if token != wire.NO_TOKEN else (), finish, cached)
            except SinkFailed:
                self.cancel(number)
                finish = 1
            if finish:
                self._listener.on_finished(in_flight)
