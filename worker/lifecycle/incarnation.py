"""The pods of one incarnation of the group. PURE: times are arguments.

    leader's pod draws an id --> every pod joins (same service, revision, model, shape) --> complete --> ended
                                   | heartbeats, at least once a second
A message that names another incarnation comes from an earlier one: it is refused and counted, never acted on.
"""

from dataclasses import dataclass

from octavo.shared.liveness import WORKER, Presence

MISSED_S = 2.0  # four heartbeats: a pod that dies is heard until then


@dataclass(frozen=True, slots=True)
class Identity:
    """What the pods of a group must agree on. shape: ranks of a stage, stages, and ranks of a pod."""

    service_uid: str
    revision: str
    outline: str
    shape: tuple[int, int, int] = (1, 1, 1)


class Incarnation:
    """The leader's record of its pods. names: of the pods that have joined."""

    def __init__(self, id: str, identity: Identity, pods: int) -> None:
        self.id = id
        self.identity = identity
        self.pods = pods
        self.names: dict[int, str] = {}
        self.late = 0  # messages of other incarnations that were refused
        self._heard_s: dict[int, float] = {}
        self._started_at_ms: dict[int, int] = {}
        self._presence = Presence()

    @property
    def complete(self) -> bool:
        return len(self.names) == self.pods

    def replaces(self, pod: int, identity: Identity, started_at_ms: int) -> bool:
        """Whether this pod was made in the place of one that has joined, and the earlier one still runs where
        Kubernetes cannot end it."""
        return identity == self.identity and started_at_ms > self._started_at_ms.get(pod, started_at_ms)

    def join(self, pod: int, name: str, identity: Identity, now_s: float, started_at_ms: int = 0) -> str | None:
        """Take the pod in; a text when it may not join."""
        if pod not in range(self.pods):
            return f"pod {pod} is not one of the group's {self.pods}"
        if pod in self.names:
            return f"pod {pod} has joined incarnation {self.id} already; it must first leave"
        for field in ("service_uid", "revision", "outline", "shape"):
            theirs, ours = getattr(identity, field), getattr(self.identity, field)
            if theirs != ours:
                return f"{field} of pod {pod} is {theirs!r}, and the leader's is {ours!r}"
        self.names[pod] = name
        self._heard_s[pod] = now_s
        self._started_at_ms[pod] = started_at_ms
        return None

    def hear(self, pod: int, incarnation: str, now_s: float) -> bool:
        """Any message of it; False (and counted) when it belongs to another incarnation or to no pod."""
        if incarnation != self.id or pod not in self.names:
            self.late += 1
            return False
        self._heard_s[pod] = now_s
        return True

    def leave(self, pod: int) -> None:
        self.names.pop(pod, None)
        self._heard_s.pop(pod, None)
        self._started_at_ms.pop(pod, None)

    def fell_silent(self, pod: int, now_s: float) -> bool:
        """Whether a pod whose stream ends now had said nothing before: gRPC gives up an answerless peer at about the
        time at which it is silent for too long, and which of the two is first is chance."""
        return self._presence.is_silent(self._heard_s.get(pod, now_s), now_s, MISSED_S)

    def silent(self, now_s: float) -> list[int]:
        """Pods that said nothing for too long, by the rule of octavo.shared.liveness."""
        self._presence = self._presence.checked(now_s, WORKER)
        heard = sorted(self._heard_s.items())
        return [pod for pod, heard_s in heard if self._presence.is_silent(heard_s, now_s, WORKER.silence_s)]
