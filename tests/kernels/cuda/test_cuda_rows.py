"""Ranks that share the rows of a step draw what one draws of the same logits. Here all are on one GPU, each on a stream
of its own: to the kernels, memory is memory, on whichever GPU."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from octavo.kernels.cuda.collectives.allreduce import Team, region_bytes
from octavo.kernels.cuda.collectives.rows import RowBox, RowTeam
from octavo.kernels.cuda.sampling.sample import OwnSamples, sample
from octavo.kernels.cuda.step_layout.prepare import DeviceState, StepBuffers, new_state, step_buffers
from octavo.worker.runner.cuda.buffers import memory_at

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(90)]

SPARE = 2  # rows of a box before the ones that are used
# Of csrc/collectives: CTAs of a kernel at most, its threads, and bytes that each moves at once.
CTAS, THREADS, VECTOR = 64, 512, 16
KINDS: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, 0.8, 1.0, 0.7, 1.2, 0.9),
    "top_p": (1.0, 0.9, 1.0, 0.8, 1.0, 1.0),
    "top_k": (0, 0, 50, 20, 3000, 0),
    "min_p": (0.0, 0.0, 0.0, 0.0, 0.0, 0.05),
}


@dataclass(frozen=True)
class Rank:
    """rows: of its box, whole."""

    team: RowTeam
    own: OwnSamples
    rows: torch.Tensor
    stream: torch.cuda.Stream
    state: DeviceState
    drawn: torch.Tensor


def ranks_of(count: int, logits: torch.Tensor, state: DeviceState) -> tuple[list[Rank], list[torch.Tensor]]:
    """And the memory that they meet in."""
    samples, vocabulary = logits.shape
    box = RowBox(SPARE - (-samples // count), -(-vocabulary // count), count, logits.element_size())
    sums = region_bytes(count)
    memory = [torch.zeros(sums + box.bytes, dtype=torch.uint8, device="cuda") for _ in range(count)]
    regions = [one.data_ptr() for one in memory]
    boxes = [region + sums for region in regions]
    made = []
    for rank in range(count):
        own_samples = OwnSamples(rank, count)
        shape = SPARE + own_samples.count(samples), vocabulary
        rows = memory_at(boxes[rank], shape, (box.stride, 1), logits.dtype, logits.device)[SPARE:]
        own = replace(state, tokens=torch.zeros_like(state.tokens))
        drawn = torch.full((2, samples), -5, dtype=torch.int32, device="cuda")
        made.append(Rank(RowTeam(Team(rank, regions), boxes, box), own_samples, rows, torch.cuda.Stream(), own, drawn))
    torch.cuda.synchronize()
    return made, memory


def on_each(ranks: list[Rank], work: Callable[[Rank], Any]) -> None:
    """All have begun before anything else is launched: a kernel that waits may keep another from being loaded."""
    for rank in ranks:
        with torch.cuda.stream(rank.stream):
            work(rank)


def step_of(samples: int, real: int) -> tuple[StepBuffers, DeviceState]:
    state, step = new_state(samples, 16, 1, 0, "cuda"), step_buffers(samples, samples, samples, "cuda")
    for name, values in KINDS.items():
        target = getattr(state, name)
        target[:samples] = torch.tensor(values, device="cuda").to(target)[torch.arange(samples) % len(values)]
    state.seeds[:samples] = torch.arange(samples, device="cuda") * 7919
    step.header[3] = real
    step.sample_slots[:] = torch.arange(samples).flip(0)
    step.sample_ends[:] = torch.arange(samples) % 7
    step.counters[:] = torch.arange(samples) % 5
    return step, state


def columns_of(logits: torch.Tensor, ranks: list[Rank]) -> list[torch.Tensor]:
    """What each of them has computed; beyond the vocabulary something else."""
    width = -(-logits.shape[1] // len(ranks))
    padded = torch.nn.functional.pad(logits, (0, width * len(ranks) - logits.shape[1]), value=float("nan"))
    return [part.contiguous() for part in padded.split(width, dim=1)]


def all_resident(count: int, vocabulary: int, samples: int, size: int) -> bool:
    """Whether the CTAs of all ranks, which wait for each other, are on one GPU at once: there is room for one on each
    processor, whatever registers it needs. size: bytes of a number."""
    moved = -(-samples // count) * -(-vocabulary // count) * size
    ctas = min(CTAS, -(-moved // (THREADS * VECTOR)))
    return count * ctas <= torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("vocabulary", [40, 513, 49152, 128256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("samples", "real"), [(1, 1), (8, 5), (64, 64), (300, 290)])
def test_each_rank_draws_its_rows_whole_and_has_what_all_draw(
    count: int, vocabulary: int, dtype: torch.dtype, samples: int, real: int
) -> None:
    if not all_resident(count, vocabulary, samples, dtype.itemsize):
        pytest.skip(f"{count} ranks of so many rows need several GPUs")
    step, state = step_of(samples, real)
    ranks, memory = ranks_of(count, torch.empty((samples, vocabulary), dtype=dtype, device="cuda"), state)
    for turn in range(3):  # whatever lies in the boxes, and in both turns of what they meet by
        logits = torch.randn((samples, vocabulary), device="cuda").mul_(3).to(dtype)
        logits[real // 2, -1] = float("nan")
        wanted = sample(logits, step, state)
        parts = columns_of(logits, ranks)
        torch.cuda.synchronize()
        on_each(ranks, lambda rank: rank.team.send(parts[rank.own.rank], SPARE, step.header))  # noqa: B023
        on_each(ranks, lambda rank: sample(rank.rows, step, rank.state, rank.drawn, rank.own))
        on_each(ranks, lambda rank: rank.team.share(rank.drawn, step, rank.state))
        torch.cuda.synchronize()
        assert int(wanted[1, :real].sum()) == 1
        good = wanted[1, :real] == 0
        for rank in ranks:
            own = range(rank.own.rank, real, count)
            assert torch.equal(rank.rows[: len(own)].view(torch.uint8), logits[list(own)].view(torch.uint8)), turn
            assert torch.equal(rank.drawn[1, :real], wanted[1, :real])
            assert torch.equal(rank.drawn[0, :real][good], wanted[0, :real][good])
            assert (rank.drawn[:, real:] == -5).all(), "what pads a step"
            assert torch.equal(rank.drawn, ranks[0].drawn)
            slots, ends = step.sample_slots[:real].long(), step.sample_ends[:real].long()
            assert torch.equal(rank.state.tokens[slots, ends], rank.drawn[0, :real])
    del memory


def test_rows_that_are_drawn_again_are_shared_again() -> None:
    """As after a pass with penalties: each rank names some of its own, one of them none."""
    count, samples, vocabulary = 2, 9, 5000
    step, state = step_of(samples, samples)
    logits, changed = (torch.randn((samples, vocabulary), device="cuda") for _ in range(2))
    again = [0, 4, 8, 2]  # all of rank 0
    ranks, memory = ranks_of(count, logits, state)
    parts = columns_of(logits, ranks)
    wanted, second = sample(logits, step, state), sample(changed, step, state)
    wanted[:, again] = second[:, again]
    torch.cuda.synchronize()
    on_each(ranks, lambda rank: rank.team.send(parts[rank.own.rank], SPARE, settles=False))
    on_each(ranks, lambda rank: sample(rank.rows, step, rank.state, rank.drawn, rank.own))
    on_each(ranks, lambda rank: rank.team.share(rank.drawn, step, rank.state))
    chosen = torch.tensor(again, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    on_each(ranks[:1], lambda rank: sample(changed[again], step, rank.state, rank.drawn, chosen=chosen))
    on_each(ranks, lambda rank: rank.team.share(rank.drawn, step, rank.state))
    torch.cuda.synchronize()
    for rank in ranks:
        assert torch.equal(rank.drawn, wanted)
        assert torch.equal(rank.state.tokens[step.sample_slots.long(), step.sample_ends.long()], wanted[0])
    del memory


def test_graphs_of_the_ranks_go_on_counting() -> None:
    count, samples, vocabulary = 2, 12, 30_000
    step, state = step_of(samples, samples)
    logits = torch.randn((samples, vocabulary), device="cuda").bfloat16()
    ranks, memory = ranks_of(count, logits, state)
    parts = columns_of(logits, ranks)
    sample(logits, step, state)
    torch.cuda.synchronize()
    graphs = []
    for rank in ranks:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=rank.stream):
            rank.team.send(parts[rank.own.rank], SPARE, step.header)
            sample(rank.rows, step, rank.state, rank.drawn, rank.own)
            rank.team.share(rank.drawn, step, rank.state)
        graphs.append(graph)
    for turn in range(20):
        fresh = torch.randn((samples, vocabulary), device="cuda").bfloat16()
        for part, given in zip(parts, columns_of(fresh, ranks), strict=True):
            part.copy_(given)
        step.counters.add_(1)
        wanted = sample(fresh, step, state)
        torch.cuda.synchronize()
        for rank, graph in zip(ranks, graphs, strict=True):
            with torch.cuda.stream(rank.stream):
                graph.replay()
        torch.cuda.synchronize()
        for rank in ranks:
            assert torch.equal(rank.drawn, wanted), turn
    del memory


def test_what_does_not_fit_a_box_is_refused() -> None:
    _, state = step_of(4, 4)
    ranks, memory = ranks_of(2, torch.empty((4, 100), device="cuda"), state)
    with pytest.raises(ValueError, match="5 rows from 2 on; the box of a rank has 4"):
        ranks[0].team.send(torch.empty((5, 50), device="cuda"), SPARE)
    with pytest.raises(ValueError, match="wanted rows of 50 numbers of 4 bytes"):
        ranks[0].team.send(torch.empty((4, 49), device="cuda"), SPARE)
    del memory
