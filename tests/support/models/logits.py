"""How far the logits of our runner are from transformers'."""

from collections.abc import Iterator, Sequence

import torch
from support.models.oracle import Oracle
from support.worker.ranks import Ranks

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step
from octavo.worker.runner.cpu.runner import Runner


def difference(runner: Runner | Ranks, oracle: Oracle, chunk: int, *prompts: list[int]) -> float:
    """The largest difference at the ends of chunks of the prompts, each computed beside the others' chunks."""
    worst, rows = 0.0, [(slot, 0) for slot in range(len(prompts))]  # of each prompt, where its next chunk begins
    number, admits, blocks = 1, tuple(map(_admit, range(len(prompts)), prompts)), tuple(_blocks(prompts))
    while rows:
        counts = {slot: min(chunk, len(prompts[slot]) - start) for slot, start in rows}
        rows.sort(key=lambda row: counts[row[0]] > 1)  # chunks of one token come first
        slots, starts = zip(*rows, strict=True)
        forward = Forward(admits, blocks, slots, starts, tuple(counts[slot] for slot in slots))
        rows = [(slot, start + counts[slot]) for slot, start in rows]
        for logits, (slot, end) in zip(_logits(runner, Step(number, forward, Sample())), rows, strict=True):
            worst = max(worst, float((logits - oracle.logits(prompts[slot])[end - 1]).abs().max()))
        rows = [(slot, end) for slot, end in rows if end < len(prompts[slot])]
        number, admits, blocks = number + 1, (), ()
    return worst


def _admit(slot: int, ids: list[int]) -> Admit:
    return Admit(slot, tuple(ids), SamplingParams(), 0)


def _blocks(prompts: Sequence[list[int]]) -> Iterator[Blocks]:
    """A place of its own for each."""
    begin = 0
    for slot, ids in enumerate(prompts):
        end = begin - (-len(ids) // 16)
        yield Blocks(slot, 0, tuple(range(begin, end)))
        begin = end


def _logits(runner: Runner | Ranks, step: Step) -> torch.Tensor:
    """[rows, vocabulary]"""
    if isinstance(runner, Ranks):
        return runner.logits(step)
    hidden = runner.forward(step)
    assert hidden is not None
    return runner.logits(hidden)
