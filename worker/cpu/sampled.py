"""The first stage's token pool, and the sampled ids that it still lacks: the last stage sends them, in order.

They are waited for only when a step needs them, so that stages overlap: before one that reads them, and before a
request is admitted to a slot that they belong to, whose tokens they would overwrite later.
"""

from collections import deque
from dataclasses import dataclass

import torch

from octavo.worker.links import Links
from octavo.worker.step import Forward, Step


@dataclass(frozen=True, slots=True)
class Awaited:
    """What step `number` samples: one id for each of slots, to be written at places."""

    number: int
    slots: tuple[int, ...]
    places: tuple[int, ...]


class SampledIds:
    def __init__(self, links: Links, tokens: torch.Tensor) -> None:
        """tokens: the pool, [slots, context]."""
        self._links = links
        self._tokens = tokens
        self._awaited: deque[Awaited] = deque()

    def expect(self, step: Step) -> None:
        """The step has been handed on, so that its ids will come, if it samples any."""
        forward, rows = step.forward, step.sample.rows
        if rows:
            slots = tuple(forward.slots[row] for row in rows)
            places = tuple(forward.starts[row] + forward.counts[row] for row in rows)
            self._awaited.append(Awaited(step.number, slots, places))

    def settle(self, forward: Forward) -> None:
        """Take in the ids of every step up to the last that sampled for a slot which `forward` names."""
        named = {*forward.slots, *(admit.slot for admit in forward.admits)}
        while any(not named.isdisjoint(awaited.slots) for awaited in self._awaited):
            self._take_in(self._awaited.popleft())

    def _take_in(self, awaited: Awaited) -> None:
        """Raises ValueError when other ids come."""
        sampled = self._links.receive_sampled()
        if sampled.number != awaited.number or len(sampled.ids) != len(awaited.slots):
            raise ValueError(
                f"{len(sampled.ids)} ids of step {sampled.number} came from the last stage; awaited are "
                f"{len(awaited.slots)} of step {awaited.number}"
            )
        self._tokens[list(awaited.slots), list(awaited.places)] = torch.tensor(sampled.ids)
