"""Where ranks stand in a group: `pipeline` stages of `tensor` ranks each, in pods of `per_pod` ranks. PURE.

    rank r of the group:  stage r // tensor, part r % tensor of it, in pod r // per_pod

A stage may be spread over several pods; no pod holds ranks of two stages. Pod 0 is the leader's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a group. Raises ValueError when per_pod does not divide tensor."""

    tensor: int = 1
    pipeline: int = 1
    per_pod: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.per_pod) < 1 or self.tensor % self.per_pod:
            raise ValueError(f"{self.per_pod} ranks per pod do not divide a stage of {self.tensor}")

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline

    @property
    def pods(self) -> int:
        return self.ranks // self.per_pod

    def ranks_of(self, pod: int) -> range:
        """The group's ranks that this pod holds."""
        return range(pod * self.per_pod, (pod + 1) * self.per_pod)

    def pod_of(self, rank: int) -> int:
        return rank // self.per_pod

    def stage_pods(self, stage: int) -> range:
        """The pods that hold this stage."""
        width = self.tensor // self.per_pod
        return range(stage * width, (stage + 1) * width)

    @property
    def output_rank(self) -> int:
        """The rank that tells the leader what was sampled: the first of the last stage."""
        return self.tensor * (self.pipeline - 1)


@dataclass(frozen=True, slots=True)
class RankPosition:
    """Of one rank."""

    layout: Layout = Layout()
    rank: int = 0

    @property
    def stage(self) -> int:
        return self.rank // self.layout.tensor

    @property
    def tp_rank(self) -> int:
        """Which of its stage's ranks it is."""
        return self.rank % self.layout.tensor

    @property
    def first(self) -> bool:
        """It embeds."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """It samples."""
        return self.stage == self.layout.pipeline - 1

    @property
    def next(self) -> int:
        """The rank that it hands on to: of the next stage the hidden states, of the first one the sampled ids."""
        return (self.rank + self.layout.tensor) % self.layout.ranks
