"""Who belongs to this life of the group. PURE: times are arguments.

    leader draws an id --> every stage joins (same service, revision, model) --> complete --> ended
                                   | heartbeats, at least once a second
A message that names another incarnation comes from an earlier life: it is refused and counted, never acted on.
"""

from dataclasses import dataclass

SILENCE_S = 5.0
LATE_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What the pods of a group must agree on."""

    service_uid: str
    revision: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Member:
    """A stage that has joined. heard_s: when it last spoke; phase: proto Phase; finished: its last finished step."""

    heard_s: float
    phase: int = 0
    progress: int = 0
    finished: int = 0


class Incarnation:
    """The leader's record of its members."""

    def __init__(self, id: str, identity: Identity, stages: int) -> None:
        self.id = id
        self.identity = identity
        self.stages = stages
        self.members: dict[int, Member] = {}
        self.late = 0  # messages of other lives that were refused
        self._looked_s: float | None = None

    @property
    def complete(self) -> bool:
        return len(self.members) == self.stages

    def join(self, stage: int, identity: Identity, now_s: float) -> str | None:
        """Take the stage in; a text when it may not join."""
        if stage not in range(self.stages):
            return f"stage {stage} is not one of the group's {self.stages}"
        if stage in self.members:
            return f"stage {stage} has joined incarnation {self.id} already; it must first leave"
        for name in ("service_uid", "revision", "fingerprint"):
            theirs, ours = getattr(identity, name), getattr(self.identity, name)
            if theirs != ours:
                return f"{name} of stage {stage} is {theirs!r}, and the leader's is {ours!r}"
        self.members[stage] = Member(now_s)
        return None

    def hear(self, stage: int, incarnation: str, member: Member) -> bool:
        """A heartbeat; False (and counted) when it belongs to another life or to nobody."""
        if incarnation != self.id or stage not in self.members:
            self.late += 1
            return False
        self.members[stage] = member
        return True

    def leave(self, stage: int) -> None:
        self.members.pop(stage, None)

    def silent(self, now_s: float) -> list[int]:
        """Stages that said nothing for too long. A leader that was itself held up gives everybody a new start."""
        held_up = self._looked_s is not None and now_s - self._looked_s > LATE_LOOK_S
        self._looked_s = now_s
        if held_up:
            for stage, member in self.members.items():
                self.members[stage] = Member(now_s, member.phase, member.progress, member.finished)
        return [stage for stage, member in sorted(self.members.items()) if now_s - member.heard_s > SILENCE_S]
