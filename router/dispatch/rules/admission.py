"""The queue of a router: which requests enter, which goes next, which expire. Pure: the clock is an argument.

    bands        strict: a higher priority always goes first
    tenants      fair inside a band, by deficit round robin over tokens (Shreedhar & Varghese 1995)
    one tenant   first in, first out; what was let in before, for another model or group, goes ahead

A request costs prompt + 2 x max_tokens; what it did not generate in the end is given back by `settle`.
"""

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from octavo.router.errors import RouterError

OUTPUT_WEIGHT = 2  # an output token is a step of its own; prompt tokens share one
QUANTUM = 512  # tokens a tenant earns a round: about one short request
MAX_RETRY_AFTER_S = 60.0

T = TypeVar("T")


def cost(prompt_tokens: int, output_tokens: int) -> int:
    """Weighted tokens."""
    return prompt_tokens + OUTPUT_WEIGHT * output_tokens


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """max_requests: that may wait at once. max_wait_s: how long one may wait for a group."""

    max_requests: int = 1000
    max_wait_s: float = 60.0


class QueueFull(RouterError):
    """429: as many requests wait as may."""

    def __init__(self, waiting: int, retry_after: float) -> None:
        super().__init__(f"{waiting} requests wait already, which is this router's bound; try again later")
        self.retry_after = retry_after


@dataclass(slots=True, eq=False)
class QueueEntry(Generic[T]):
    """A place in the queue. Only Queue changes it."""

    item: T
    priority: int
    tenant: str
    cost: int
    arrived: float
    expires: float
    place: int = 0
    waiting: bool = False


@dataclass(slots=True, eq=False)
class _Tenant(Generic[T]):
    deficit: float = QUANTUM
    entries: OrderedDict[int, QueueEntry[T]] = field(default_factory=OrderedDict)  # by place; a dict's first is O(n)
    early: OrderedDict[int, QueueEntry[T]] | None = None  # likewise; they go ahead of `entries`; few tenants have any

    @property
    def first(self) -> QueueEntry[T]:
        return next(iter((self.early or self.entries).values()))

    @property
    def owes(self) -> float:
        return self.first.cost - self.deficit


class _Band(Generic[T]):
    """Tenants with something waiting, in the order of their turns."""

    def __init__(self) -> None:
        self.turns: OrderedDict[str, _Tenant[T]] = OrderedDict()

    def head(self) -> QueueEntry[T]:
        """The request of the next tenant; calling it again changes nothing. A tenant that cannot pay earns, and goes to
        the back."""
        while True:
            for _ in range(len(self.turns)):
                name, tenant = next(iter(self.turns.items()))
                if tenant.owes <= 0:
                    return tenant.first
                tenant.deficit += QUANTUM
                self.turns.move_to_end(name)
            # Rounds in which no tenant could pay are added at once: a huge cost is not a long loop.
            idle_rounds = min(math.ceil(tenant.owes / QUANTUM) for tenant in self.turns.values()) - 1
            for tenant in self.turns.values():
                tenant.deficit += max(idle_rounds, 0) * QUANTUM

    def put(self, entry: QueueEntry[T], early: bool, first: bool) -> None:
        """early: ahead of what was never let in before; first: of all."""
        tenant = self.turns.get(entry.tenant)
        if tenant is None:
            tenant = self.turns[entry.tenant] = _Tenant()
        if not early:
            tenant.entries[entry.place] = entry
            return
        if tenant.early is None:
            tenant.early = OrderedDict()
        tenant.early[entry.place] = entry
        if first:
            tenant.early.move_to_end(entry.place, last=False)

    def drop(self, entry: QueueEntry[T], served: bool) -> None:
        tenant = self.turns[entry.tenant]
        if tenant.entries.pop(entry.place, None) is None and tenant.early is not None:
            del tenant.early[entry.place]
        if served:
            tenant.deficit -= entry.cost
        if not tenant.entries and not tenant.early:
            del self.turns[entry.tenant]  # an idle tenant saves nothing up


class Queue(Generic[T]):
    """Requests that wait for credit. Every operation is O(log n) or better in what waits."""

    def __init__(self, bounds: QueueLimits) -> None:
        self.bounds = bounds
        self._bands: dict[int, _Band[T]] = {}
        self._expiries: list[tuple[float, int, QueueEntry[T]]] = []
        self._places = 0
        self._waiting = 0
        self._last_wait_s = 0.0

    def __len__(self) -> int:
        return self._waiting

    @property
    def next_expiry(self) -> float:
        """When the next request may expire; inf: never. May be early."""
        return self._expiries[0][0] if self._expiries else math.inf

    @property
    def retry_after_s(self) -> float:
        """The wait of the last request that left: an estimate for the next one."""
        return float(min(max(math.ceil(self._last_wait_s), 1), MAX_RETRY_AFTER_S))

    def push(self, entry: QueueEntry[T], readmitted: bool = False) -> None:
        """Join the queue. readmitted: it was let in before, and goes behind others of the kind, ahead of its tenant's
        rest and past the bound. Raises QueueFull."""
        if self._waiting >= self.bounds.max_requests and not readmitted:
            raise QueueFull(self._waiting, self.retry_after_s)
        self._put(entry, early=readmitted)

    def put_back(self, entry: QueueEntry[T], expires: float) -> None:
        """Return one that was popped, to the front of its tenant and past the bound: it was let in and paid for."""
        entry.expires = expires
        entry.cost = 0
        self._put(entry, early=True, first=True)

    def head(self) -> QueueEntry[T] | None:
        """The next request to send. It stays the same until something is pushed, popped or removed."""
        return self._bands[max(self._bands)].head() if self._bands else None

    def pop(self, entry: QueueEntry[T], now: float) -> None:
        """The head has been sent."""
        self._last_wait_s = now - entry.arrived
        self._drop(entry, served=True)

    def remove(self, entry: QueueEntry[T]) -> None:
        """Drop a request. Harmless when it does not wait."""
        if entry.waiting:
            self._drop(entry, served=False)

    def expire(self, now: float) -> list[QueueEntry[T]]:
        """Remove and return the requests that have expired."""
        late: list[QueueEntry[T]] = []
        while self._expiries and self._expiries[0][0] <= now:
            _, place, entry = heapq.heappop(self._expiries)
            if entry.waiting and entry.place == place:
                self._last_wait_s = now - entry.arrived
                self._drop(entry, served=False)
                late.append(entry)
        return late

    def settle(self, priority: int, tenant: str, unused: int) -> None:
        """Give back what a request was charged for and did not use, if its tenant still waits for its turn."""
        band = self._bands.get(priority)
        if band is not None and tenant in band.turns:
            band.turns[tenant].deficit += unused

    def _put(self, entry: QueueEntry[T], early: bool, first: bool = False) -> None:
        self._places += 1
        entry.place, entry.waiting = self._places, True
        self._waiting += 1
        band = self._bands.get(entry.priority)
        if band is None:
            band = self._bands[entry.priority] = _Band()
        band.put(entry, early, first)
        heapq.heappush(self._expiries, (entry.expires, entry.place, entry))

    def _drop(self, entry: QueueEntry[T], served: bool) -> None:
        entry.waiting = False
        self._waiting -= 1
        band = self._bands[entry.priority]
        band.drop(entry, served)
        if not band.turns:
            del self._bands[entry.priority]
        if len(self._expiries) > 2 * self._waiting + 64:
            self._expiries = [e for e in self._expiries if e[2].waiting and e[2].place == e[1]]
            heapq.heapify(self._expiries)
