"""The requests of one micro-batch that decode: each step of it computes exactly one position of each, so nothing is
done per request and step.

    position of a request in the next step = base + tick        tick: steps that the batch has taken

What a request will need is known when it gets its row, as a tick: `needs` (its next block) and `ends` (the one after
its last position). Membership changes rarely, so what depends on it alone is kept as tuples until it does.

A step that reads a token sampled by one of the stages-1 steps before it waits for them. The batches take turns, so that
rows need not wait; one that joins gets its row when its newest token is old enough.
"""

from dataclasses import dataclass
from itertools import repeat
from operator import add

from octavo.worker.messages.request import Phase, Request


@dataclass(frozen=True, slots=True)
class Members:
    """Parallel tuples, one entry a request, in the order of the step's rows."""

    requests: tuple[Request, ...]
    keys: tuple[int, ...]
    slots: tuple[int, ...]
    rows: tuple[int, ...]
    counts: tuple[int, ...]
    tokens: tuple[list[int], ...]  # of each request


class DecodeBatch:
    def __init__(self, block_size: int, stages: int = 1) -> None:
        self.requests: list[Request] = []  # with a row in its next step
        self.joining: list[Request] = []  # without one yet
        self.context = 0  # sum of the positions of the next step
        self.number = 0  # newest step that the batch took part in
        self._block_size = block_size
        self._stages = stages
        self._tick = 0
        self._keys: list[int] = []
        self._slots: list[int] = []
        self._tokens: list[list[int]] = []
        self._bases: list[int] = []
        self._counters: list[int] = []
        self._needs: dict[int, list[Request]] = {}
        self._ends: dict[int, list[Request]] = {}
        self._members: Members | None = None

    def __len__(self) -> int:
        return len(self.requests) + len(self.joining)

    def ready(self) -> int:
        """The first step in which its rows wait for no step before; 0 when it has none."""
        if self.requests:
            return self.number + self._stages
        return min((self._ready(request) for request in self.joining), default=0)

    def join(self, request: Request) -> None:
        request.phase = Phase.DECODING
        self.joining.append(request)

    def admit_joining(self, number: int) -> None:
        """Rows for joining requests that need wait for nothing in step `number`."""
        if self.joining:
            joining, self.joining = self.joining, []
            for request in joining:
                if self._ready(request) <= number:
                    self._add(request)
                else:
                    self.joining.append(request)

    def leave(self, request: Request) -> None:
        """Settles `issued` and `last_step`. The caller decides what the request does next."""
        if request in self.joining:
            self.joining.remove(request)
            return
        index = self.requests.index(request)
        base = self._bases[index]
        for column in (self.requests, self._keys, self._slots, self._tokens, self._bases, self._counters):
            del column[index]
        _drop(self._needs, self._need(request, base), request)
        _drop(self._ends, request.total - 1 - base, request)
        request.issued = base + self._tick
        request.last_step = max(request.last_step, self.number)
        self.context -= request.issued
        self._members = None

    def needing_block(self) -> list[Request]:
        """Requests whose next position lies beyond their blocks: each gets one before the next step."""
        return list(self._needs.get(self._tick, ()))

    def grown(self) -> None:
        """They have got their blocks."""
        if (grown := self._needs.pop(self._tick, None)) is not None:
            self._needs.setdefault(self._tick + self._block_size, []).extend(grown)

    def done(self) -> list[Request]:
        """Requests whose last position was in the newest step."""
        return list(self._ends.get(self._tick, ()))

    def members(self) -> Members:
        if self._members is None:
            count = len(self.requests)
            self._members = Members(
                requests=tuple(self.requests),
                keys=tuple(self._keys),
                slots=tuple(self._slots),
                rows=tuple(range(count)),
                counts=(1,) * count,
                tokens=tuple(self._tokens),
            )
        return self._members

    def advance(self, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take part in step `number`: the positions computed, and the random counters of their samples."""
        tick = self._tick
        self._tick += 1
        self.number = number
        self.context += len(self.requests)
        return tuple(map(add, self._bases, repeat(tick))), tuple(map(add, self._counters, repeat(tick)))

    def _add(self, request: Request) -> None:
        base = request.issued - self._tick
        self.requests.append(request)
        self._keys.append(request.new.key)
        self._slots.append(request.slot)
        self._tokens.append(request.tokens)
        self._bases.append(base)
        self._counters.append(base + 1 - len(request.new.prompt))
        self._needs.setdefault(self._need(request, base), []).append(request)
        self._ends.setdefault(request.total - 1 - base, []).append(request)
        self.context += request.issued
        self._members = None

    def _ready(self, request: Request) -> int:
        return request.last_step + self._stages

    def _need(self, request: Request, base: int) -> int:
        return len(request.blocks) * self._block_size - base


def _drop(calendar: dict[int, list[Request]], tick: int, request: Request) -> None:
    due = calendar[tick]
    due.remove(request)
    if not due:
        del calendar[tick]
