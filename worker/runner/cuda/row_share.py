"""Ranks of a stage share the rows of a step while they sample: each draws some, from the whole vocabulary, as a rank
alone does; then all have what was drawn (docs/decisions/0018).

    AllRows       a rank alone: every row is its own
    PeerRows      GPUs that write to each other's memory
    SwappedRows   others: by NCCL
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from octavo.kernels.cuda.collectives.rows import RowBox, RowTeam
from octavo.kernels.cuda.sampling.sample import ALL_SAMPLES, OwnSamples
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.worker.distributed.collective import Collective, Gathering
from octavo.worker.runner.cuda.buffers import memory_at
from octavo.worker.runner.cuda.collectives import Peers

SCORED_ROWS = 64  # logits of a prompt at a time: a bound to memory


class RowShare(Protocol):
    """All ranks make the same calls, in the same order; no host waits. own_samples: which this rank draws."""

    own_samples: OwnSamples

    def own_rows(self, logits: torch.Tensor, step: StepBuffers) -> torch.Tensor:
        """[n, vocabulary], the rows of its own samples, of logits [S, columns] of a step; until the next pass."""

    def own_prompt_rows(self, logits: torch.Tensor) -> torch.Tensor:
        """The same of a prompt's logits [at most SCORED_ROWS, columns]; until the next call."""

    def share(self, drawn: torch.Tensor, step: StepBuffers, state: DeviceState) -> None:
        """drawn [2, S] int32, ids and failures, has each rank's own; then it has all, and so has the token pool."""

    def add_up(self, results: torch.Tensor) -> None:
        """results: int32, an even number of them, 0 but for what is of this rank's rows; then of all ranks' rows."""


def row_box(max_requests: int, vocabulary: int, ranks: int, size: int) -> RowBox:
    """Of a pass's rows, then of a prompt's. size: bytes of a number."""
    rows = -(-max_requests // ranks) - (-SCORED_ROWS // ranks)
    return RowBox(rows, -(-vocabulary // ranks), ranks, size)


def row_share(collective: Collective, box: RowBox, vocabulary: int, dtype: torch.dtype) -> RowShare:
    """collective: of the stage, on its devices."""
    if collective.size == 1:
        return AllRows()
    if isinstance(collective, Peers):
        return PeerRows(collective, box, vocabulary, dtype)
    assert isinstance(collective, Swapping), "ranks that share rows have a way to swap them"
    return SwappedRows(collective, vocabulary)


class AllRows:
    own_samples = ALL_SAMPLES

    def own_rows(self, logits: torch.Tensor, step: StepBuffers) -> torch.Tensor:
        return logits

    def own_prompt_rows(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def share(self, drawn: torch.Tensor, step: StepBuffers, state: DeviceState) -> None:
        pass

    def add_up(self, results: torch.Tensor) -> None:
        pass


class PeerRows:
    def __init__(self, peers: Peers, box: RowBox, vocabulary: int, dtype: torch.dtype) -> None:
        self.own_samples = OwnSamples(peers.rank, peers.size)
        self._peers = peers
        self._rows = RowTeam(peers.team, peers.boxes, box)
        device, shape = torch.device("cuda", torch.cuda.current_device()), (box.rows, vocabulary)
        self._box = memory_at(peers.boxes[peers.rank], shape, (box.stride, 1), dtype, device)
        self._prompts = box.rows - -(-SCORED_ROWS // peers.size)  # the first row of a prompt

    def own_rows(self, logits: torch.Tensor, step: StepBuffers) -> torch.Tensor:
        """Since the last pass's rows were read every rank has begun to add up this one."""
        self._rows.send(logits, 0, step.header, settles=False)
        return self._box[: self.own_samples.count(logits.shape[0])]

    def own_prompt_rows(self, logits: torch.Tensor) -> torch.Tensor:
        self._rows.send(logits, self._prompts)
        return self._box[self._prompts :][: self.own_samples.count(logits.shape[0])]

    def share(self, drawn: torch.Tensor, step: StepBuffers, state: DeviceState) -> None:
        self._rows.share(drawn, step, state)

    def add_up(self, results: torch.Tensor) -> None:
        self._peers.sum_(results.view(torch.int64))


@runtime_checkable
class Swapping(Gathering, Protocol):
    def swap(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        """came[rank] becomes what that rank has sent to this one; sent[rank] goes there. Of the same sizes on both."""


class SwappedRows:
    def __init__(self, collective: Swapping, vocabulary: int) -> None:
        self.own_samples = OwnSamples(collective.rank, collective.size)
        self._collective, self._vocabulary = collective, vocabulary

    def own_rows(self, logits: torch.Tensor, step: StepBuffers) -> torch.Tensor:
        return self.own_prompt_rows(logits)

    def own_prompt_rows(self, logits: torch.Tensor) -> torch.Tensor:
        rows, columns = logits.shape
        sent = [logits[rank :: self.own_samples.size].contiguous() for rank in range(self.own_samples.size)]
        came = [logits.new_empty((self.own_samples.count(rows), columns)) for _ in sent]
        self._collective.swap(sent, came)
        return torch.cat(came, dim=1)[:, : self._vocabulary]

    def share(self, drawn: torch.Tensor, step: StepBuffers, state: DeviceState) -> None:
        """What pads a step goes where no request is."""
        samples, size = drawn.shape[1], self.own_samples.size
        own = drawn.new_zeros((2, -(-samples // size)))
        own[:, : self.own_samples.count(samples)] = drawn[:, self.own_samples.rank :: size]
        drawn.copy_(self._collective.gather(own).permute(1, 2, 0).reshape(2, -1)[:, :samples])
        state.tokens[step.sample_slots.long(), step.sample_ends.long()] = drawn[0]

    def add_up(self, results: torch.Tensor) -> None:
        self._collective.sum_(results.view(torch.int64))
