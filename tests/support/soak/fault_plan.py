"""Which faults a soak makes, and when: drawn from a seed, whatever the machine does. Pure."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from support.soak.process_table import Role


class Action(StrEnum):
    KILL = "KILL"
    STOP = "STOP"  # and CONT some seconds later
    TERM = "TERM"
    BURST = "burst"  # of connections
    HALF_OPEN = "half-open"  # connections that never send a whole request
    FILL = "fill"  # a file system, until nothing fits


PROCESSES = (Action.KILL, Action.STOP, Action.TERM)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """target: a role, or what else the action is done to."""

    action: Action
    target: str
    weight: int = 1

    def __str__(self) -> str:
        return f"{self.action} {self.target}".strip()


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """pause_s: before it. pick: which of the role's processes, in [0, 1). stopped_s: of a STOP."""

    kind: FaultKind
    pause_s: float
    pick: float
    stopped_s: float


_HIT = {
    Role.RANK: 3, Role.CORE: 2, Role.SERVE: 2, Role.SUPERVISOR: 2, Role.ROUTER_PROCESS: 2, Role.ROUTER: 1,
    Role.HELPER: 2, Role.FORK_SERVER: 1,
}  # fmt: skip
KINDS = (
    *(FaultKind(action, role, weight) for action in (Action.KILL, Action.STOP) for role, weight in _HIT.items()),
    FaultKind(Action.TERM, Role.SUPERVISOR, 2),
    FaultKind(Action.BURST, "", 2),
    FaultKind(Action.HALF_OPEN, "", 2),
    FaultKind(Action.FILL, "TMPDIR", 1),
    FaultKind(Action.FILL, "/dev/shm", 1),
)
SHORT_S, LONG_S = (1.0, 8.0), 45.0  # of a STOP: it is waited out, or found by the watching processes
LONG_SHARE = 0.4


def kinds_of(text: str) -> list[FaultKind]:
    """Of `KILL core,STOP router process,burst`. Raises ValueError for one that KINDS does not have."""
    known = {str(kind): kind for kind in KINDS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(known)}")
    return [FaultKind(known[name].action, known[name].target) for name in names]


def plan(seed: int, kinds: Sequence[FaultKind], pause_s: tuple[float, float]) -> Iterator[PlannedFault]:
    """Without end. pause_s: the shortest and the longest between two."""
    draw = random.Random(f"faults-{seed}")
    while kinds:
        kind = draw.choices(kinds, [kind.weight for kind in kinds])[0]
        long = draw.random() < LONG_SHARE
        stopped_s = draw.uniform(*SHORT_S)
        yield PlannedFault(kind, draw.uniform(*pause_s), draw.random(), LONG_S if long else stopped_s)
