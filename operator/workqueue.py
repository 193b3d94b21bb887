"""The work queue: one reconcile at a time per key, requests for it coalesced, back-off per key, keys in parallel.

    add ---> due ---> taken ---> done            (forgotten, or due again if it was added meanwhile)
                        `------> failed ---> due after the key's back-off

`Schedule` is the logic, with the time as an argument; `WorkQueue` waits for it.
"""

import asyncio
import heapq
import time
from collections import deque
from dataclasses import dataclass, field

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 60.0


@dataclass(slots=True)
class Schedule:
    """What is due when. A key has at most one due time: the earliest that anybody asked for, an urgent one before all.

    rank: 0 of what is urgent, 1 of the rest.
    """

    _due: dict[str, tuple[int, float]] = field(default_factory=dict)  # rank, time
    _heaps: tuple[list[tuple[float, str]], ...] = field(default_factory=lambda: ([], []))  # by rank: time, key
    _taken: dict[str, int] = field(default_factory=dict)  # key: the rank that it had
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
            self._push(key)

    def _push(self, key: str) -> None:
        """A key that is being worked on is put in line when it is given back."""
        if key not in self._taken:
            rank, at = self._due[key]
            heapq.heappush(self._heaps[rank], (at, key))

    def take(self, now: float) -> str | None:
        """The key that has been due longest, of the urgent ones if there are any, and is not being worked on."""
        for rank in (0, 1):
            at = self._next_at(rank)
            if at is not None and at <= now:
                key = heapq.heappop(self._heaps[rank])[1]
                del self._due[key]
                self._taken[key] = rank
                self._news.discard(key)
                return key
        return None

    def done(self, key: str) -> None:
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        self._give_back(key)

    def _give_back(self, key: str) -> None:
        self._taken.pop(key, None)
        if key in self._due:
            self._push(key)

    def failed(self, key: str, now: float) -> float:
        """Give the key back; returns the seconds until it is tried again: as urgently as before."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = 0.0
        if key not in self._news:  # else what failed is not what the user wishes now
            delay = min(FIRST_BACKOFF_S * 2.0 ** min(failures, 16), MAX_BACKOFF_S)
            self._not_before[key] = now + delay
            self._due[key] = (self._taken[key], now + delay)
        self._give_back(key)
        return delay

    def forget_failures(self) -> None:
        """No key waits for its back-off any more; what is due later than now stays so."""
        self._failures.clear()
        self._not_before.clear()

    def next_at(self) -> float | None:
        """The earliest due time of a key that nobody works on."""
        return min((at for rank in (0, 1) if (at := self._next_at(rank)) is not None), default=None)

    def _next_at(self, rank: int) -> float | None:
        """The same of one rank; what was superseded falls off its heap."""
        heap = self._heaps[rank]
        while heap:
            at, key = heap[0]
            if key not in self._taken and self._due.get(key) == (rank, at):
                return at
            heapq.heappop(heap)
        return None

    def waiting(self, now: float) -> int:
        return sum(1 for _, at in self._due.values() if at <= now)


class WorkQueue:
    """The schedule with a clock and a way to wait: each key that falls due wakes one of those who wait."""

    def __init__(self) -> None:
        self._schedule = Schedule()
        self._waiting: deque[asyncio.Future[str]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._paused = False

    def pause(self) -> None:
        """Hand out nothing more: the process is about to end."""
        self._paused = True

    def add(self, key: str, delay_s: float = 0.0, urgent: bool = False) -> None:
        self._schedule.add(key, time.monotonic() + delay_s, urgent)
        self._hand_out()

    async def take(self) -> str:
        mine: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        self._hand_out()
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was handed out, and nobody works on it
                self._schedule.add(mine.result(), time.monotonic())
                self.done(mine.result())
            raise

    def _hand_out(self) -> None:
        now = time.monotonic()
        while self._waiting and not self._paused:
            if self._waiting[0].done():  # cancelled
                self._waiting.popleft()
            elif (key := self._schedule.take(now)) is not None:
                self._waiting.popleft().set_result(key)
            else:
                break
        self._set_alarm(now)

    def _set_alarm(self, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        at = self._schedule.next_at() if self._waiting and not self._paused else None
        if at is not None:
            self._alarm = asyncio.get_running_loop().call_later(max(at - now, 0.001), self._hand_out)

    def done(self, key: str) -> None:
        self._schedule.done(key)
        self._hand_out()

    def failed(self, key: str) -> float:
        delay = self._schedule.failed(key, time.monotonic())
        self._hand_out()
        return delay

    def forget_failures(self) -> None:
        self._schedule.forget_failures()

    def waiting(self) -> int:
        return self._schedule.waiting(time.monotonic())
