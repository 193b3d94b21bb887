"""What a child of the supervisor inherits: the configuration of the pod, and the file descriptors of this incarnation.

It travels as JSON: to serve and core as an argument, and descriptors keep their numbers across the exec; to a rank by
way of the fork server, where they get other numbers.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.worker.config import Config
from octavo.worker.ipc import ring
from octavo.worker.ipc import shared_board as board
from octavo.worker.ipc.ring import RingFds

# Bytes. The inbox holds prompts, so do steps, of all requests they admit; results hold the log-probabilities of
# a step's tokens. Memory is used as it is touched.
_INBOX, _OUTBOX, _STEPS, _RESULTS = 16 << 20, 8 << 20, 32 << 20, 8 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory of one incarnation."""

    board: int
    inbox: RingFds  # serve -> core
    outbox: RingFds  # core -> serve
    relay: RingFds  # core -> serve: steps for other pods
    returned: RingFds  # serve -> core: what the ranks of other pods say
    steps: tuple[RingFds, ...]  # core, or in other pods the supervisor -> each rank of this pod
    results: tuple[RingFds, ...]  # and back

    def all(self) -> list[int]:
        rings = (self.inbox, self.outbox, self.relay, self.returned, *self.steps, *self.results)
        return [self.board, *(fd for ring_fds in rings for fd in ring_fds.all())]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """One child's share.

    local: the leader's private socket. report: where a failure is written. rank: of the group; -1 for serve and core.
    """

    config: Config
    model_dir: str
    outline: str
    incarnation: str
    shared: Shared
    local: str
    report: int
    rank: int
    parent: int

    def own(self) -> "ProcessContext":
        """Without the rings of the pod's other ranks."""
        shared = self.shared
        steps, results = (self.ring(shared.steps),), (self.ring(shared.results),)
        return dataclasses.replace(self, shared=dataclasses.replace(shared, steps=steps, results=results))

    def ring(self, rings: tuple[RingFds, ...]) -> RingFds:
        """Of these, one for each rank of the pod, this rank's own."""
        return rings[self.rank % len(rings)]


def create_shared(ranks: int) -> Shared:
    """Fresh memory for a pod with so many ranks: nothing of an earlier incarnation is in it."""
    return Shared(
        board=board.create(),
        inbox=ring.create("octavo-inbox", _INBOX),
        outbox=ring.create("octavo-outbox", _OUTBOX),
        relay=ring.create("octavo-relay", _STEPS),
        returned=ring.create("octavo-returned", _RESULTS),
        steps=tuple(ring.create("octavo-steps", _STEPS) for _ in range(ranks)),
        results=tuple(ring.create("octavo-results", _RESULTS) for _ in range(ranks)),
    )


def dump(context: ProcessContext) -> str:
    return json.dumps(dataclasses.asdict(context))


def load(text: str) -> ProcessContext:
    values = json.loads(text)
    fds = values["shared"]
    one = {name: RingFds(**fds[name]) for name in ("inbox", "outbox", "relay", "returned")}
    each = {name: tuple(RingFds(**ring_fds) for ring_fds in fds[name]) for name in ("steps", "results")}
    shared = Shared(fds["board"], **one, **each)  # type: ignore[arg-type]  # by name, which mypy does not follow
    config = Config(**{**values["config"], "peers": tuple(values["config"]["peers"])})
    return ProcessContext(**{**values, "config": config, "shared": shared})


def renumbered(context: ProcessContext, fds: Sequence[int], report: int) -> ProcessContext:
    """The same with other descriptors: fds in the order of Shared.all()."""
    board, *rest = fds
    rings = iter([RingFds(*rest[at : at + 3]) for at in range(0, len(rest), 3)])
    one = {name: next(rings) for name in ("inbox", "outbox", "relay", "returned")}
    steps = tuple(next(rings) for _ in context.shared.steps)
    return dataclasses.replace(context, report=report, shared=Shared(board, **one, steps=steps, results=tuple(rings)))
