"""What a child of the supervisor inherits: the configuration of the pod, and the file descriptors of this life.

It travels as one JSON argument; descriptors keep their numbers across the exec.
"""

import dataclasses
import json
import os
from dataclasses import dataclass

from octavo.worker import board, ring
from octavo.worker.config import Config
from octavo.worker.ring import RingFds

# Bytes. The inbox holds prompts, and steps hold those of all requests they admit; memory is used as it is touched.
_INBOX, _OUTBOX, _STEPS, _RESULTS = 16 << 20, 8 << 20, 32 << 20, 1 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory of one life."""

    board: int
    inbox: RingFds  # serve -> core
    outbox: RingFds  # core -> serve
    steps: RingFds  # core -> rank
    results: RingFds  # rank -> core

    def all(self) -> list[int]:
        rings = (self.inbox, self.outbox, self.steps, self.results)
        return [self.board, *(fd for ring_fds in rings for fd in ring_fds.all())]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Wiring:
    """One child's share. local: the leader's private socket. report: where a failure is written. slot: on the board."""

    config: Config
    model_dir: str
    fingerprint: str
    shared: Shared
    local: str
    report: int
    slot: int
    parent: int


def create_shared() -> Shared:
    """Fresh memory: nothing of an earlier life is in it."""
    return Shared(
        board=board.create(),
        inbox=ring.create("octavo-inbox", _INBOX),
        outbox=ring.create("octavo-outbox", _OUTBOX),
        steps=ring.create("octavo-steps", _STEPS),
        results=ring.create("octavo-results", _RESULTS),
    )


def dump(wiring: Wiring) -> str:
    return json.dumps(dataclasses.asdict(wiring))


def load(text: str) -> Wiring:
    values = json.loads(text)
    fds = values["shared"]
    shared = Shared(
        fds["board"],
        RingFds(**fds["inbox"]),
        RingFds(**fds["outbox"]),
        RingFds(**fds["steps"]),
        RingFds(**fds["results"]),
    )
    return Wiring(**{**values, "config": Config(**values["config"]), "shared": shared})
