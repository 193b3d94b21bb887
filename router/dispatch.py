"""Queue, choice and streams tied together: from a job to the group that runs it, and again when the group is lost.

    submit -> queue -> choose -> stream -> sink
                ^                  |
                +--- rescue <------+

Everything runs in the event loop's thread and nothing here awaits: a job moves on in the call that made room for it.
"""

import asyncio
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

from octavo.proto.v1 import engine_pb2
from octavo.router import refusals, wire
from octavo.router.admission import Bounds, Entry, Queue, QueueFull, cost
from octavo.router.choose import Candidate, affinity_hashes, choose
from octavo.router.fleet import Fleet
from octavo.router.flight import Flight
from octavo.router.generation import Job, Model, RequestError, Sink
from octavo.router.tls import Dial
from octavo.router.upstream import Stream

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
MAX_LOST_INCARNATIONS = 2  # a request on which so many have died may be what kills them


@dataclass(slots=True)
class Counts:
    """What happened so far, for metrics. Totals since the start."""

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    retried: int = 0
    cut: int = 0
    poisoned: int = 0
    worn_out: int = 0
    rejected: int = 0
    queue_full: int = 0
    no_capacity: int = 0
    deadline_exceeded: int = 0
    model_changed: int = 0


@dataclass(frozen=True, slots=True)
class Ticket:
    """The Handle of one flight."""

    dispatcher: "FleetDispatcher"
    flight: Flight

    def cancel(self) -> None:
        self.dispatcher.cancel(self.flight)


class FleetDispatcher:
    """The real Dispatcher, and the Listener of its streams."""

    def __init__(self, bounds: Bounds, dial: Dial, hello: engine_pb2.FromRouter) -> None:
        self.counts = Counts()
        self.fleet = Fleet(dial, hello, self)
        self._queue: Queue[Flight] = Queue(bounds)
        self._loop = asyncio.get_running_loop()
        self._open = 0
        self._closed = False
        self._has_model = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._colds = 0

    # What the HTTP side calls.

    @property
    def ready(self) -> bool:
        return bool(self.fleet.usable)

    @property
    def synced(self) -> bool:
        return self.fleet.synced

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
        if (lacking := self._lacking(job)) is not None:
            raise refusals.lacking(job.called(lacking))
        now = self._loop.time()
        flight = Flight(job, sink, affinity_hashes(job.prompt, job.salt))
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
        if flight.entry is not None:
            self._queue.remove(flight.entry)
        if flight.carrier is not None:
            flight.carrier.cancel(flight.number)
        self.counts.cancelled += 1
        self._over(flight)

    async def close(self) -> None:
        """End every stream; what is still open is told so."""
        self._closed = True
        await self.fleet.close()
        while (entry := self._queue.head()) is not None:
            self._fail(entry.item, refusals.draining())
        if self._timer is not None:
            self._timer.cancel()

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
            self._over(flight)

    def rejected(self, stream: Stream, flight: Flight, rejected: engine_pb2.Rejected) -> None:
        flight.carrier = None
        if rejected.code != engine_pb2.Rejected.UNAVAILABLE:
            self.counts.rejected += 1
            self._fail(flight, refusals.rejected(flight.job.called(rejected.field), rejected.message))
            return
        flight.avoid.add(stream.address)
        self._retry(flight)

    def draining(self, stream: Stream) -> None:
        log.info("group %s: draining, %d requests under way", stream.address, len(stream.flights))
        self.fleet.review()

    def lost(self, stream: Stream) -> None:
        self.fleet.review()
        flights, stream.flights = list(stream.flights.values()), {}
        if flights:
            log.warning("group %s: lost with %d requests under way", stream.address, len(flights))
        for flight in reversed(flights):  # each goes to the front of the queue
            flight.carrier = None
            if not stream.is_draining:
                flight.lost.add(stream.incarnation)
            self._rescue(flight)
        self._pump()

    # Decisions.

    def _rescue(self, flight: Flight) -> None:
        if not flight.can_restart():
            self.counts.cut += 1
            self._fail(flight, refusals.cut(flight.produced))
        elif self._closed:
            self._fail(flight, refusals.draining())
        elif len(flight.lost) >= MAX_LOST_INCARNATIONS:
            self.counts.poisoned += 1
            self._fail(flight, refusals.poison(len(flight.lost)))
        else:
            self._retry(flight)

    def _retry(self, flight: Flight) -> None:
        if flight.attempts >= MAX_ATTEMPTS:
            self.counts.worn_out += 1
            self._fail(flight, refusals.worn_out(flight.attempts))
            return
        assert flight.entry is not None
        self.counts.retried += 1
        expires = min(flight.job.deadline, self._loop.time() + self._queue.bounds.max_wait_s)
        self._queue.put_back(flight.entry, expires)

    def _pump(self) -> None:
        """Send heads while there is credit for them."""
        while (entry := self._queue.head()) is not None:
            flight = entry.item
            if self._is_stale(flight):
                self.counts.model_changed += 1
                self._fail(flight, refusals.model_changed())
                continue
            if (lacking := self._lacking(flight.job)) is not None:
                self._fail(flight, refusals.lacking(flight.job.called(lacking)))
                continue
            stream = self._choose(flight)
            if stream is None:
                break
            self._queue.pop(entry, self._loop.time())
            self._send(flight, stream)
        self._arm()

    def _is_stale(self, flight: Flight) -> bool:
        current = self.fleet.current
        return bool(flight.job.fingerprint) and current is not None and flight.job.fingerprint != current.fingerprint

    def _lacking(self, job: Job) -> str | None:
        """A field of the job that none of the groups can serve together with the others; None without groups."""
        usable = self.fleet.usable
        if not job.needs or not usable or any(job.needs <= stream.features for stream in usable):
            return None
        return min(min(job.needs - stream.features) for stream in usable)

    def _choose(self, flight: Flight) -> Stream | None:
        usable, needs = self.fleet.usable, flight.job.needs
        if needs:
            usable = [stream for stream in usable if needs <= stream.features]
        if flight.avoid.issuperset(stream.address for stream in usable):
            flight.avoid.clear()
        open_ = [s for s in usable if s.ledger.balance > 0 and s.address not in flight.avoid]
        if len(open_) <= 1:
            return open_[0] if open_ else None
        return open_[choose(flight.job.prompt_tokens, [_candidate(stream, flight) for stream in open_])]

    def _send(self, flight: Flight, stream: Stream) -> None:
        cached = stream.prefixes.cached_tokens(flight.hashes)
        if not cached:
            self._colds += 1
            stream.last_cold = self._colds
        stream.submit(flight, max(flight.job.prompt_tokens - cached, 1))

    def _fail(self, flight: Flight, error: RequestError) -> None:
        if flight.over:
            return
        if flight.entry is not None:
            self._queue.remove(flight.entry)
        self._over(flight)
        flight.fail(error)

    def _over(self, flight: Flight) -> None:
        flight.over = True
        self._open -= 1
        job = flight.job
        self._queue.settle(job.priority, job.tenant, cost(0, max(job.max_tokens - flight.produced, 0)))

    # Time.

    def _arm(self) -> None:
        """Have `_expire` called when the first deadline passes; an early call is harmless."""
        at = self._queue.next_expiry
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._expire) if at < math.inf else None

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for entry in self._queue.expire(now):
            flight = entry.item
            if flight.job.deadline <= now:
                self.counts.deadline_exceeded += 1
                self._fail(flight, refusals.deadline(self._queue.retry_after_s))
            else:
                self.counts.no_capacity += 1
                waited, groups = now - entry.arrived, len(self.fleet.usable)
                self._fail(flight, refusals.no_capacity(waited, groups, self._queue.retry_after_s))
        self._arm()


def _candidate(stream: Stream, flight: Flight) -> Candidate:
    return Candidate(
        pending_tokens=stream.load.prompt_tokens + stream.ledger.unseen_tokens,
        decoding=stream.load.running + stream.ledger.unseen,
        cached=stream.prefixes.cached_tokens(flight.hashes),
        last_cold=stream.last_cold,
    )
