"""Connects queue, routing policy and streams: sends a job to a group, and again when that group is lost.

    submit -> queue -> select_group -> stream -> sink
                ^                        |
                +--------- retry <-------+

`rules/admission.py` decides when a job is sent, `select_group.py` to which group; `leader_stream.py` sends it;
`retry.py` decides whether it is sent again after its stream is lost.

Everything runs in the event loop's thread and nothing here awaits: a job is sent in the call that made room for it. So
one call serves many requests: an error in one request's handling ends that request and no other.
"""

import asyncio
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import wire
from octavo.router.dispatch.deadline_timer import Alarm
from octavo.router.dispatch.fleet import Fleet
from octavo.router.dispatch.in_flight import Flight
from octavo.router.dispatch.policies.candidate import Policy
from octavo.router.dispatch.retry import end_of_lost, end_of_tries, end_of_wait
from octavo.router.dispatch.rules.admission import Bounds, Entry, Queue, QueueFull, cost
from octavo.router.dispatch.rules.prefix_memory import affinity_hashes
from octavo.router.dispatch.select_group import lacking, place
from octavo.router.dispatch.stream import Stream
from octavo.router.dispatch.tls import Dial
from octavo.router.internal_errors import Contained, InternalErrors
from octavo.router.jobs import refusals
from octavo.router.jobs.counts import Counts
from octavo.router.jobs.generation import Job, Model, RequestError, Sink
from octavo.router.jobs.reach import Reach

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after an error of the queue itself


@dataclass(frozen=True, slots=True)
class Ticket:
    """The Handle of one job in flight."""

    dispatcher: "FleetDispatcher"
    flight: Flight

    def cancel(self) -> None:
        self.dispatcher.cancel(self.flight)


class FleetDispatcher:
    """The real Dispatcher, and the Listener of its streams. policy: chooses among groups with room. lists_ready: the
    lists that it is given name only groups that serve."""

    def __init__(
        self, bounds: Bounds, dial: Dial, hello: engine_pb2.FromRouter, policy: Policy, lists_ready: bool = False
    ) -> None:
        self.counts = Counts()
        self.errors = InternalErrors()
        self.fleet = Fleet(dial, hello, self, self.errors)
        self._policy = policy
        self._lists_ready = lists_ready
        self._queue: Queue[Flight] = Queue(bounds)
        self._loop = asyncio.get_running_loop()
        self._open = 0
        self._closed = False
        self._has_model = asyncio.Event()
        self._expiry_timer = Alarm(self._expire)
        self._retry: asyncio.Handle | None = None
        self._sent = 0

    # What the HTTP side calls.

    @property
    def ready(self) -> bool:
        return bool(self.fleet.usable)

    @property
    def synced(self) -> bool:
        return self.fleet.synced

    @property
    def reach(self) -> Reach:
        return Reach(self.fleet.listed, self.fleet.missing, self._lists_ready)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def under_way(self) -> int:
        return self._open - len(self._queue)

    def files(self) -> Model | None:
        return self.fleet.current

    async def model(self, deadline: float) -> Model:
        begun = self._loop.time()
        latest = min(deadline, begun + self._queue.bounds.max_wait_s)
        try:
            async with asyncio.timeout_at(latest if latest < math.inf else None):
                await self._has_model.wait()
        except TimeoutError:
            self.counts.no_capacity += 1
            raise refusals.no_capacity(self._loop.time() - begun, 0, self._queue.retry_after_s) from None
        assert self.fleet.current is not None
        return self.fleet.current

    def submit(self, job: Job, sink: Sink) -> Ticket:
        if self._closed:
            raise refusals.draining()
        if len(job.prompt) > wire.MAX_PROMPT_BYTES:
            raise refusals.too_large(len(job.prompt), wire.MAX_PROMPT_BYTES)
        if (field := lacking(job, self.fleet.usable)) is not None:
            raise refusals.lacking(job.called(field))
        now = self._loop.time()
        flight = Flight(job, sink, affinity_hashes(job.prompt, job.salt), self.errors)
        expires = min(job.deadline, now + self._queue.bounds.max_wait_s)
        charge = cost(job.prompt_tokens, job.max_tokens)
        flight.entry = Entry(flight, job.priority, job.tenant, charge, now, expires)
        try:
            self._queue.push(flight.entry)
        except QueueFull as full:
            self.counts.queue_full += 1
            raise refusals.queue_full(str(full), full.retry_after) from None
        self.counts.submitted += 1
        self._open += 1
        self._pump()
        return Ticket(self, flight)

    def cancel(self, flight: Flight) -> None:
        if flight.over:
            return
        self.counts.cancelled += 1
        self._release(flight)

    async def close(self) -> None:
        """End every stream and fail the open jobs with `draining`."""
        self._closed = True
        await self.fleet.close()
        while (entry := self._queue.head()) is not None:
            self._fail(entry.item, refusals.draining())
            if entry.waiting:
                break
        self._expiry_timer.off()
        if self._retry is not None:
            self._retry.cancel()

    # What discovery calls.

    def retarget(self, addresses: Iterable[str]) -> None:
        self.fleet.retarget(addresses)
        self._pump()

    # What streams call.

    def opened(self, stream: Stream, model: Model) -> None:
        self.fleet.opened(stream, model)
        if self.fleet.current is not None:
            self._has_model.set()

    def credited(self, stream: Stream) -> None:
        if len(self._queue):
            self._pump()
        if stream.retired and not stream.flights:
            self.fleet.review()

    def landed(self, flight: Flight) -> None:
        if not flight.over:
            self.counts.finished += 1
            self._release(flight)

    def rejected(self, stream: Stream, flight: Flight, rejected: engine_pb2.Rejected) -> None:
        flight.carrier = None
        with self._contained(flight):
            if rejected.code == engine_pb2.Rejected.UNAVAILABLE:
                flight.avoid.add(stream.address)
                self._put_back(flight)
            else:
                self.counts.rejected += 1
                self._fail(flight, refusals.rejected(flight.job.called(rejected.field), rejected.message))

    def draining(self, stream: Stream) -> None:
        log.info("group %s: draining, %d requests under way", stream.address, len(stream.flights))
        self.fleet.review()

    def lost(self, stream: Stream) -> None:
        flights, stream.flights = list(stream.flights.values()), {}
        if flights:
            log.warning("group %s: lost with %d requests under way", stream.address, len(flights))
        for flight in reversed(flights):  # each goes to the front of the queue
            flight.carrier = None
            if not stream.is_draining:
                flight.lost.add(stream.incarnation)
            with self._contained(flight):
                self._retry_job(flight)
        with self.errors.contained("group %s: its end", stream.address):
            self.fleet.review()
        self._pump()

    # Sending and retrying.

    def _retry_job(self, flight: Flight) -> None:
        """Retry a job of a lost stream on another group, or fail it."""
        if flight.over:  # by the failure of another job of its request
            return None
        if end := end_of_lost(flight, self._closed, self.counts):
            return self._fail(flight, end)
        return self._put_back(flight)

    def _put_back(self, flight: Flight) -> None:
        if end := end_of_tries(flight, self.counts):
            return self._fail(flight, end)
        assert flight.entry is not None
        self.counts.retried += 1
        expires = min(flight.job.deadline, self._loop.time() + self._queue.bounds.max_wait_s)
        self._queue.put_back(flight.entry, expires)

    def _pump(self) -> None:
        """Send heads while there is credit for them. Raises nothing."""
        with self.errors.contained("the queue", then=self._retry_soon):
            while (entry := self._queue.head()) is not None:
                with self._contained(entry.item):
                    self._advance(entry)
                if entry.waiting:
                    break
            self._expiry_timer.at(self._queue.next_expiry)

    def _advance(self, entry: Entry[Flight]) -> None:
        """Send the head of the queue, or fail it; it goes on waiting while no group has credit."""
        flight = entry.item
        if self._is_stale(flight):
            self.counts.model_changed += 1
            return self._fail(flight, refusals.model_changed())
        if (field := lacking(flight.job, self.fleet.usable)) is not None:
            return self._fail(flight, refusals.lacking(flight.job.called(field)))
        stream = place(flight, self.fleet.usable, self._policy)
        if stream is not None:
            self._queue.pop(entry, self._loop.time())
            self._send(flight, stream)
        return None

    def _is_stale(self, flight: Flight) -> bool:
        current = self.fleet.current
        return bool(flight.job.fingerprint) and current is not None and flight.job.fingerprint != current.fingerprint

    def _send(self, flight: Flight, stream: Stream) -> None:
        cached = stream.prefixes.cached_tokens(flight.hashes)
        self._sent += 1
        stream.last_sent = self._sent
        if not cached:
            stream.last_cold = self._sent
        stream.submit(flight, max(flight.job.prompt_tokens - cached, 1))

    def _contained(self, flight: Flight) -> Contained:
        """A block that serves this job: an error in it fails the job and removes it everywhere."""
        end = partial(self._fail, flight, refusals.failed())
        return self.errors.contained("request %s: its handling", flight.job.id, then=end)

    def _fail(self, flight: Flight, error: RequestError) -> None:
        if flight.over:
            return
        self._release(flight)
        flight.fail(error)

    def _release(self, flight: Flight) -> None:
        """Remove it from the queue and its stream, and give back what it did not use. Raises nothing."""
        flight.over = True
        self._open -= 1
        job = flight.job
        with self.errors.contained("request %s: its place", job.id):
            if flight.entry is not None:
                self._queue.remove(flight.entry)
        with self.errors.contained("request %s: its group", job.id):
            if flight.carrier is not None:
                flight.carrier.cancel(flight.number)
        with self.errors.contained("request %s: its account", job.id):
            self._queue.settle(job.priority, job.tenant, cost(0, max(job.max_tokens - flight.produced, 0)))

    # Expiry.

    def _expire(self) -> None:
        """Raises nothing."""
        self._retry = None
        now = self._loop.time()
        with self.errors.contained("the queue", then=self._retry_soon):
            for entry in self._queue.expire(now):
                with self._contained(entry.item):
                    waited, groups = now - entry.arrived, len(self.fleet.usable)
                    late = entry.item.job.deadline <= now
                    self._fail(entry.item, end_of_wait(late, waited, groups, self._queue.retry_after_s, self.counts))
        self._pump()

    def _retry_soon(self) -> None:
        """After an error of the queue or its timer: waiting jobs must not depend on the next request."""
        if self._retry is None and not self._closed:
            self._retry = self._loop.call_later(RETRY_S, self._expire)
