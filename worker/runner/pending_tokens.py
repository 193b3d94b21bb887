"""The sampled ids that the first stage still lacks: the last stage sends them, in order.

They are taken in only when a step needs them, so that stages overlap: before one that reads them, and before a request
is admitted to a slot that they belong to, whose tokens they would overwrite later. Ids that no step needs, of requests
that have ended, are taken in once their step has surely returned: what is sent and not taken has a bound.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.worker.messages.step import Forward, Step
from octavo.worker.topology import Layout


@dataclass(frozen=True, slots=True)
class StepTokens:
    """What step `number` samples: one id for each of slots, to be written at places."""

    number: int
    slots: tuple[int, ...]
    places: tuple[int, ...]


def most_pending(layout: Layout) -> int:
    """Steps whose ids may be on their way: as many as are under way when another is issued."""
    return layout.pipeline + 1


class PendingTokens:
    def __init__(self, most: int) -> None:
        """most: steps that are awaited when another is issued."""
        self._most = most
        self._pending: deque[StepTokens] = deque()

    def expect(self, step: Step) -> None:
        """The step has been handed on, so that its ids will come: if it samples any, or none because it has no rows."""
        forward, rows = step.forward, step.sample.rows
        if rows or not forward.slots:
            slots = tuple(forward.slots[row] for row in rows)
            places = tuple(forward.starts[row] + forward.counts[row] for row in rows)
            self._pending.append(StepTokens(step.number, slots, places))

    def due(self, forward: Forward) -> Iterator[StepTokens]:
        """The tokens to be taken in now, in order: of every step up to the last that sampled for a slot which `forward`
        names, and of the oldest beyond `most`."""
        named = {*forward.slots, *(admit.slot for admit in forward.admits)}
        while len(self._pending) > self._most or any(not named.isdisjoint(pending.slots) for pending in self._pending):
            yield self._pending.popleft()


def checked(pending: StepTokens, number: int, ids: tuple[int, ...]) -> tuple[int, ...]:
    """The ids that came. Raises ValueError when others were awaited."""
    if number != pending.number or len(ids) != len(pending.slots):
        raise ValueError(
            f"{len(ids)} ids of step {number} came from the last stage; awaited are {len(pending.slots)} of step "
            f"{pending.number}"
        )
    return ids
