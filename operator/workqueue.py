"""The work queue: one reconcile at a time per key, coalesced requests, a back-off per key; keys run in parallel.

    add ---> due ---> running ---> done            (removed, or due again if it was added meanwhile)
                        `--------> failed ---> due after the key's back-off

A key that is added all the time is taken BURST times at once and then each INTERVAL_S, so that the others are not late.
`Schedule` is the logic, with the time as an argument; `WorkQueue` adds the clock and the waiting.
"""

import asyncio
import heapq
import time
from collections import deque
from dataclasses import dataclass, field

from octavo.operator.pace import Pace

BURST, INTERVAL_S = 20, 0.5
FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 60.0


@dataclass(slots=True)
class Schedule:
    """Due times of keys. A key has one due time: the earliest that was added, of the urgent ones if there are any.

    rank: 0 for urgent keys, 1 for others.
    """

    _due: dict[str, tuple[int, float]] = field(default_factory=dict)  # rank, time
    _heaps: tuple[list[tuple[float, str]], ...] = field(default_factory=lambda: ([], []))  # by rank: time, key
    _running: dict[str, int] = field(default_factory=dict)  # key: its rank when it was taken
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)  # running keys that were added as urgent
    _pace: Pace = field(default_factory=lambda: Pace(BURST, INTERVAL_S))

    def add(self, key: str, at: float, urgent: bool = False) -> None:
        """Make a key due at `at`, or later by its pace. Its back-off holds even if its objects change, unless it is
        urgent: a user's change is taken before all other keys."""
        if urgent:
            self._not_before.pop(key, None)
            if key in self._running:
                self._changed.add(key)
        due = (0 if urgent else 1, self._pace.next_at(key, max(at, self._not_before.get(key, at))))
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            self._push(key)

    def _push(self, key: str) -> None:
        """Put a due key on its heap; a running key is put there when it is released."""
        if key not in self._running:
            rank, at = self._due[key]
            heapq.heappush(self._heaps[rank], (at, key))

    def take(self, now: float) -> str | None:
        """Start the key that has been due longest, of the urgent ones if there are any; None: no key is due."""
        for rank in (0, 1):
            at = self._next_at(rank)
            if at is not None and at <= now:
                key = heapq.heappop(self._heaps[rank])[1]
                del self._due[key]
                self._running[key] = rank
                self._pace.take(key, now)
                self._changed.discard(key)
                return key
        return None

    def done(self, key: str) -> None:
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        self._release(key)

    def _release(self, key: str) -> None:
        self._running.pop(key, None)
        if key in self._due:
            self._push(key)

    def failed(self, key: str, now: float) -> float:
        """Release a failed key; returns the seconds until its retry, which is as urgent as before."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = 0.0
        if key not in self._changed:  # else the failure is of an earlier spec
            delay = min(FIRST_BACKOFF_S * 2.0 ** min(failures, 16), MAX_BACKOFF_S)
            self._not_before[key] = now + delay
            self._due[key] = (self._running[key], now + delay)
        self._release(key)
        return delay

    def forget_failures(self) -> None:
        """Reset all back-offs; due times stay."""
        self._failures.clear()
        self._not_before.clear()

    def next_at(self) -> float | None:
        """The earliest due time of a key that is not running."""
        return min((at for rank in (0, 1) if (at := self._next_at(rank)) is not None), default=None)

    def _next_at(self, rank: int) -> float | None:
        """The earliest due time of one rank; removes superseded entries from its heap."""
        heap = self._heaps[rank]
        while heap:
            at, key = heap[0]
            if key not in self._running and self._due.get(key) == (rank, at):
                return at
            heapq.heappop(heap)
        return None

    def waiting(self, now: float) -> int:
        return sum(1 for _, at in self._due.values() if at <= now)


class WorkQueue:
    """The schedule with a clock and waiting: each key that becomes due wakes one waiting task."""

    def __init__(self) -> None:
        self._schedule = Schedule()
        self._waiting: deque[asyncio.Future[str]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False

    def pause(self) -> None:
        """Start no more keys: the process is about to end."""
        self._paused = True

    def add(self, key: str, delay_s: float = 0.0, urgent: bool = False) -> None:
        self._schedule.add(key, time.monotonic() + delay_s, urgent)
        self._dispatch()

    async def take(self) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._dispatch()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # the key was assigned, and no task runs it
                self._schedule.add(future.result(), time.monotonic())
                self.done(future.result())
            raise

    def _dispatch(self) -> None:
        now = time.monotonic()
        while self._waiting and not self._paused:
            if self._waiting[0].done():  # cancelled
                self._waiting.popleft()
            elif (key := self._schedule.take(now)) is not None:
                self._waiting.popleft().set_result(key)
            else:
                break
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._schedule.next_at() if self._waiting and not self._paused else None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(at - now, 0.001), self._dispatch)

    def done(self, key: str) -> None:
        self._schedule.done(key)
        self._dispatch()

    def failed(self, key: str) -> float:
        delay = self._schedule.failed(key, time.monotonic())
        self._dispatch()
        return delay

    def forget_failures(self) -> None:
        self._schedule.forget_failures()

    def waiting(self) -> int:
        return self._schedule.waiting(time.monotonic())
