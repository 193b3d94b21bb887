"""Connects queue, routing policy and streams: sends a job to a group, and again when that group is lost.

    choose a model -> (tokenise) -> submit -> the model's queue -> select_group -> stream -> sink
                                                     ^                                |
                                                     +------------- retry <-----------+

`rules/model_shares.py` chooses the model that a request is tokenised for; `rules/admission.py` decides when a job is
sent, `select_group.py` to which group; `leader_stream.py` sends it; `retry.py` decides whether it is sent again after
its stream is lost. A job whose model has gone fails with ModelChanged, and the frontend tokenises its request again.

Everything runs in the event loop's thread and nothing here awaits: a job is sent in the call that made room for it. So
one call serves many requests: an error in one request's handling ends that request and no other.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import wire
from octavo.router.dispatch.deadline_timer import DeadlineTimer
from octavo.router.dispatch.fleet import Fleet
from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream
from octavo.router.dispatch.policies.candidate import Policy
from octavo.router.dispatch.retry import error_of_attempts, error_of_expiry, error_of_lost_stream
from octavo.router.dispatch.rules.admission import Queue, QueueEntry, QueueFull, QueueLimits, cost
from octavo.router.dispatch.rules.model_queues import ModelQueues
from octavo.router.dispatch.rules.model_shares import ModelShares
from octavo.router.dispatch.rules.prefix_memory import affinity_hashes
from octavo.router.dispatch.select_group import select_group, unservable
from octavo.router.dispatch.tls import Dial
from octavo.router.internal_errors import Contained, InternalErrors
from octavo.router.jobs import refusals
from octavo.router.jobs.counts import Counts
from octavo.router.jobs.generation import Job, Model, RequestError, ServedModel, Sink
from octavo.router.jobs.reachability import Reachability

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after an error of the queue itself


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The Handle of one job in flight."""

    dispatcher: "FleetDispatcher"
    in_flight: InFlightJob

    def cancel(self) -> None:
        self.dispatcher.cancel(self.in_flight)


class FleetDispatcher:
    """The real Dispatcher, and the Listener of its streams. policy: chooses among groups with room. lists_ready: the
    lists that it is given name only groups that serve."""

    def __init__(
        self, bounds: QueueLimits, dial: Dial, hello: engine_pb2.FromRouter, policy: Policy, lists_ready: bool = False
    ) -> None:
        self.counts = Counts()
        self.errors = InternalErrors()
        self.fleet = Fleet(dial, hello, self, self.errors)
        self._policy = policy
        self._lists_ready = lists_ready
        self.list_silent_s: Callable[[], float] = lambda: 0.0  # seconds since the list was last confirmed
        self._queues: ModelQueues[InFlightJob] = ModelQueues(bounds)
        self._shares = ModelShares()
        self._loop = asyncio.get_running_loop()
        self._open = 0
        self._closed = False
        self._has_model = asyncio.Event()
        self._expiry_timer = DeadlineTimer(self._expire)
        self._retry: asyncio.Handle | None = None
        self._sent = 0

    # What the HTTP side calls.

    @property
    def ready(self) -> bool:
        return len(self.fleet.usable) > self.fleet.asleep

    @property
    def synced(self) -> bool:
        return self.fleet.synced

    @property
    def reachability(self) -> Reachability:
        return Reachability(
            self.fleet.listed, self.fleet.missing, self._lists_ready, self.list_silent_s(), self.fleet.skews
        )

    @property
    def waiting(self) -> int:
        return len(self._queues)

    @property
    def under_way(self) -> int:
        return self._open - len(self._queues)

    @property
    def models(self) -> Sequence[ServedModel]:
        return self.fleet.served

    async def models_changed(self) -> None:
        await self.fleet.served_changed.wait()
        self.fleet.served_changed.clear()

    def choose(self, digests: Collection[str]) -> ServedModel | None:
        served = self.fleet.served
        if len(served) == 1:
            return served[0] if served[0].digest in digests else None
        known = {one.digest: one for one in served if one.digest in digests}
        if len(known) < 2 or not self.fleet.usable:
            return next(iter(known.values()), None)
        return known[self._shares.choose({digest: one.groups for digest, one in known.items()}, self._has_room)]

    async def model(self, deadline: float) -> ServedModel:
        begun = self._loop.time()
        latest = min(deadline, begun + self._queues.bounds.max_wait_s)
        try:
            async with asyncio.timeout_at(latest if latest < math.inf else None):
                await self._has_model.wait()
        except TimeoutError:
            self.counts.no_capacity += 1
            raise refusals.no_capacity(self._loop.time() - begun, 0, self._queues.retry_after_s) from None
        return self.fleet.served[0]

    def submit(self, job: Job, sink: Sink) -> JobHandle:
        if self._closed:
            raise refusals.draining()
        if len(job.prompt) > wire.MAX_PROMPT_BYTES:
            raise refusals.too_large(len(job.prompt), wire.MAX_PROMPT_BYTES)
        if (error := unservable(job, self.fleet.usable_of(job.digest))) is not None:
            raise error
        now = self._loop.time()
        in_flight = InFlightJob(job, sink, affinity_hashes(job.prompt, job.salt), self.errors)
        expires = min(job.deadline, now + self._queues.bounds.max_wait_s)
        charge = cost(job.prompt_tokens, job.max_tokens)
        in_flight.entry = QueueEntry(in_flight, job.priority, job.tenant, charge, now, expires)
        try:
            queue = self._queues.push(job.digest, in_flight.entry, job.readmitted)
        except QueueFull as full:
            self.counts.queue_full += 1
            raise refusals.queue_full(str(full), full.retry_after) from None
        self.counts.submitted += 1
        self._open += 1
        self._pump(queue)
        return JobHandle(self, in_flight)

    def cancel(self, in_flight: InFlightJob) -> None:
        if in_flight.over:
            return
        self.counts.cancelled += 1
        self._release(in_flight)

    async def close(self) -> None:
        """End every stream and fail the open jobs with `draining`."""
        self._closed = True
        await self.fleet.close()
        for queue in self._queues.nonempty:
            while (entry := queue.head()) is not None:
                self._fail(entry.item, refusals.draining())
                if entry.waiting:
                    break
        self._expiry_timer.cancel()
        if self._retry is not None:
            self._retry.cancel()

    # What discovery calls.

    def retarget(self, addresses: Iterable[str]) -> None:
        self.fleet.retarget(addresses)
        self._pump_all()

    # What streams call.

    def opened(self, stream: LeaderStream, model: Model) -> None:
        self.fleet.opened(stream, model)
        if self.fleet.served:
            self._has_model.set()
        self._pump_all()  # what waits for a model that has gone need wait no longer

    def credited(self, stream: LeaderStream) -> None:
        queue = self._queues.find(stream.digest)
        if queue is not None and len(queue):
            self._pump(queue)
        if stream.retired and not stream.in_flight_jobs:
            self.fleet.review()

    def on_finished(self, in_flight: InFlightJob) -> None:
        if not in_flight.over:
            self.counts.finished += 1
            self._release(in_flight)

    def rejected(self, stream: LeaderStream, in_flight: InFlightJob, rejected: engine_pb2.Rejected) -> None:
        in_flight.stream = None
        with self._contained(in_flight):
            if rejected.code == engine_pb2.Rejected.UNAVAILABLE:
                in_flight.avoid.add(stream.address)
                self._put_back(in_flight)
            else:
                self.counts.rejected += 1
                self._fail(in_flight, refusals.rejected(in_flight.job.client_field(rejected.field), rejected.message))

    def draining(self, stream: LeaderStream) -> None:
        log.info("group %s: draining, %d requests under way", stream.address, len(stream.in_flight_jobs))
        self.fleet.review()
        self._pump_all()

    def lost(self, stream: LeaderStream) -> None:
        in_flight_jobs, stream.in_flight_jobs = list(stream.in_flight_jobs.values()), {}
        if in_flight_jobs:
            log.warning("group %s: lost with %d requests under way", stream.address, len(in_flight_jobs))
        for in_flight in reversed(in_flight_jobs):  # each goes to the front of the queue
            in_flight.stream = None
            if not stream.is_draining:
                in_flight.lost.add(stream.incarnation)
            with self._contained(in_flight):
                self._retry_job(in_flight)
        with self.errors.contained("group %s: its end", stream.address):
            self.fleet.review()
        self._pump_all()

    # Sending and retrying.

    def _retry_job(self, in_flight: InFlightJob) -> None:
        """Retry a job of a lost stream on another group, or fail it."""
        if in_flight.over:  # by the failure of another job of its request
            return None
        if end := error_of_lost_stream(in_flight, self._closed, self.counts):
            return self._fail(in_flight, end)
        return self._put_back(in_flight)

    def _put_back(self, in_flight: InFlightJob) -> None:
        if end := error_of_attempts(in_flight, self.counts):
            return self._fail(in_flight, end)
        assert in_flight.entry is not None
        self.counts.retried += 1
        expires = min(in_flight.job.deadline, self._loop.time() + self._queues.bounds.max_wait_s)
        self._queues.of(in_flight.job.digest).put_back(in_flight.entry, expires)

    def _pump_all(self) -> None:
        """After a change of the groups, or of time."""
        for queue in self._queues.nonempty:
            self._pump(queue)
        self._queues.forget([one.digest for one in self.fleet.served])

    def _pump(self, queue: Queue[InFlightJob]) -> None:
        """After a change of one model's queue, or of its groups' credit: send heads while there is credit for them.
        Raises nothing."""
        with self.errors.contained("the queue", then=self._retry_soon):
            while (entry := queue.head()) is not None:
                with self._contained(entry.item):
                    self._advance(queue, entry)
                if entry.waiting:
                    break
            if len(queue):
                self._expiry_timer.set(queue.next_expiry)

    def _advance(self, queue: Queue[InFlightJob], entry: QueueEntry[InFlightJob]) -> None:
        """Send the head of a queue, or fail it; it goes on waiting while no group has credit."""
        in_flight = entry.item
        usable = self.fleet.usable_of(in_flight.job.digest)
        if not usable and self.fleet.usable:
            self.counts.model_changed += 1
            return self._fail(in_flight, refusals.model_changed())
        stream = select_group(in_flight, usable, self._policy)
        if stream is None:
            error = unservable(in_flight.job, usable)
            return None if error is None else self._fail(in_flight, error)
        queue.pop(entry, self._loop.time())
        return self._send(in_flight, stream)

    def _has_room(self, digest: str) -> bool:
        """Whether a request for this model would be sent at once."""
        queue = self._queues.find(digest)
        if queue is not None and len(queue):
            return False
        return any(stream.ledger.balance > 0 for stream in self.fleet.usable_of(digest))

    def _send(self, in_flight: InFlightJob, stream: LeaderStream) -> None:
        cached = stream.prefixes.cached_tokens(in_flight.hashes)
        self._sent += 1
        stream.last_sent = self._sent
        if not cached:
            stream.last_cold = self._sent
        stream.submit(in_flight, max(in_flight.job.prompt_tokens - cached, 1))

    def _contained(self, in_flight: InFlightJob) -> Contained:
        """A block that serves this job: an error in it fails the job and removes it everywhere."""
        end = partial(self._fail_internally, in_flight)
        return self.errors.contained("request %s: its handling", in_flight.job.id, then=end)

    def _fail_internally(self, in_flight: InFlightJob) -> None:
        self._fail(in_flight, refusals.failed())

    def _fail(self, in_flight: InFlightJob, error: RequestError) -> None:
        if in_flight.over:
            return
        self._release(in_flight)
        in_flight.fail(error)

    def _release(self, in_flight: InFlightJob) -> None:
        """Remove it from the queue and its stream, and give back what it did not use. Raises nothing."""
        in_flight.over = True
        self._open -= 1
        job = in_flight.job
        queue = self._queues.find(job.digest)
        with self.errors.contained("request %s: its place", job.id):
            if in_flight.entry is not None and queue is not None:
                queue.remove(in_flight.entry)
        with self.errors.contained("request %s: its group", job.id):
            if in_flight.stream is not None:
                in_flight.stream.cancel(in_flight.number)
        with self.errors.contained("request %s: its account", job.id):
            if queue is not None and in_flight.attempts:  # one that was never sent was charged nothing
                queue.settle(job.priority, job.tenant, cost(0, max(job.max_tokens - in_flight.produced, 0)))

    # Expiry.

    def _expire(self) -> None:
        """Raises nothing."""
        self._retry = None
        now = self._loop.time()
        with self.errors.contained("the queue", then=self._retry_soon):
            for entry in [entry for queue in self._queues.nonempty for entry in queue.expire(now)]:
                with self._contained(entry.item):
                    job, waited = entry.item.job, now - entry.arrived
                    groups = len(self.fleet.usable_of(job.digest))
                    late, retry_after_s = job.deadline <= now, self._queues.retry_after_s
                    self._fail(entry.item, error_of_expiry(late, waited, groups, retry_after_s, self.counts))
        self._pump_all()

    def _retry_soon(self) -> None:
        """After an error of the queue or its timer: waiting jobs must not depend on the next request."""
        if self._retry is None and not self._closed:
            self._retry = self._loop.call_later(RETRY_S, self._expire)
