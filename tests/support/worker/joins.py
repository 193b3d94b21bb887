"""Both sides of Join without the processes behind them."""

import asyncio
from dataclasses import dataclass, field

from octavo.proto.v1 import group_pb2


@dataclass
class LeaderEar:
    """What the leader hears of pods. objection: to every heartbeat."""

    objection: str = ""
    beats: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    drained: asyncio.Event = field(default_factory=asyncio.Event)

    def heartbeat(self, pod: int, beat: group_pb2.Heartbeat) -> None:
        if self.objection:
            raise ValueError(self.objection)
        self.beats.append(pod)

    def record(self, record: bytes) -> None:
        self.records.append(record)

    def drain(self) -> None:
        self.drained.set()


@dataclass
class PodEar:
    """What a pod hears of the leader."""

    incarnations: list[str] = field(default_factory=list)
    steps: list[bytes] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    def joined(self, incarnation: str) -> None:
        self.incarnations.append(incarnation)
        self.entered.set()

    def step(self, record: bytes) -> None:
        self.steps.append(record)

    def group_is(self, phase: "group_pb2.Phase.ValueType") -> None:
        self.phases.append(phase)

    def heartbeat(self) -> group_pb2.Heartbeat:
        return group_pb2.Heartbeat()
