"""The work queue: one reconcile at a time per key, requests for it coalesced, back-off per key, keys in parallel.

    add ---> due ---> taken ---> done            (forgotten, or due again if it was added meanwhile)
                        `------> failed ---> due after the key's back-off

`Schedule` is the logic, with the time as an argument; `WorkQueue` waits for it.
"""

import asyncio
import heapq
import time
from dataclasses import dataclass, field

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 60.0


@dataclass(slots=True)
class Schedule:
    """What is due when. A key has at most one due time: the earliest that anybody asked for, an urgent one before all.

    rank: 0 of what is urgent, 1 of the rest.
    """

    _due: dict[str, tuple[int, float]] = field(default_factory=dict)  # rank, time
    _heap: list[tuple[int, float, str]] = field(default_factory=list)  # rank, time, key; what is urgent is due at once
    _taken: set[str] = field(default_factory=set)
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)
    _news: set[str] = field(default_factory=set)  # keys that a user changed while they were worked on

    def add(self, key: str, at: float, urgent: bool = False) -> None:
        """A key that fails does not spin because its objects change; a user's change is urgent, and is taken before a
        thousand others that are looked at once more."""
        if urgent:
            self._not_before.pop(key, None)
            if key in self._taken:
                self._news.add(key)
        due = (0 if urgent else 1, max(at, self._not_before.get(key, at)))
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            heapq.heappush(self._heap, (*due, key))

    def take(self, now: float) -> str | None:
        """The key that has been due longest, of the urgent ones if there are any, and is not being worked on."""
        passed: list[tuple[int, float, str]] = []
        found = None
        while self._heap and self._heap[0][1] <= now:
            rank, at, key = heapq.heappop(self._heap)
            if self._due.get(key) != (rank, at):
                continue  # superseded
            if key in self._taken:
                passed.append((rank, at, key))
                continue
            found = key
            break
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if found is not None:
            del self._due[found]
            self._taken.add(found)
            self._news.discard(found)
        return found

    def done(self, key: str) -> None:
        self._taken.discard(key)
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def failed(self, key: str, now: float) -> float:
        """Give the key back; returns the seconds until it is tried again."""
        self._taken.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if key in self._news:  # what failed is not what the user wishes now
            return 0.0
        delay = min(FIRST_BACKOFF_S * 2.0 ** min(failures, 16), MAX_BACKOFF_S)
        self._not_before[key] = now + delay
        self._due.pop(key, None)
        self.add(key, now + delay)
        return delay

    def next_at(self) -> float | None:
        """The earliest due time of a key that nobody works on."""
        times = [at for key, (_, at) in self._due.items() if key not in self._taken]
        return min(times, default=None)

    def waiting(self, now: float) -> int:
        return sum(1 for _, at in self._due.values() if at <= now)


class WorkQueue:
    """The schedule with a clock and a way to wait."""

    def __init__(self) -> None:
        self._schedule = Schedule()
        self._changed = asyncio.Event()
        self._paused = False

    def pause(self) -> None:
        """Hand out nothing more: the process is about to end."""
        self._paused = True

    def add(self, key: str, delay_s: float = 0.0, urgent: bool = False) -> None:
        self._schedule.add(key, time.monotonic() + delay_s, urgent)
        self._changed.set()

    async def take(self) -> str:
        while True:
            self._changed.clear()
            now = time.monotonic()
            key = None if self._paused else self._schedule.take(now)
            if key is not None:
                return key
            at = None if self._paused else self._schedule.next_at()
            try:
                await asyncio.wait_for(self._changed.wait(), None if at is None else max(at - now, 0.001))
            except TimeoutError:
                continue

    def done(self, key: str) -> None:
        self._schedule.done(key)
        self._changed.set()

    def failed(self, key: str) -> float:
        delay = self._schedule.failed(key, time.monotonic())
        self._changed.set()
        return delay

    def waiting(self) -> int:
        return self._schedule.waiting(time.monotonic())
