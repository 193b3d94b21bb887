"""How far the logits of our runner are from those of transformers."""

import torch
from support.oracle import Oracle
from support.ranks import Ranks

from octavo.worker.cpu.runner import Runner
from octavo.worker.request import Sampling
from octavo.worker.step import Admit, Blocks, Forward, Sample, Step


def difference(runner: Runner | Ranks, oracle: Oracle, ids: list[int], chunk: int) -> float:
    """The largest difference at the ends of chunks of the prompt."""
    expected = oracle.logits(ids)
    blocks = Blocks(0, 0, tuple(range(-(-len(ids) // 16))))
    worst = 0.0
    for start in range(0, len(ids), chunk):
        count = min(chunk, len(ids) - start)
        admits = (Admit(0, tuple(ids), Sampling(), 0),) if start == 0 else ()
        forward = Forward(admits, (blocks,) if start == 0 else (), (0,), (start,), (count,))
        logits = _logits(runner, Step(start + 1, forward, Sample()))
        worst = max(worst, float((logits[0] - expected[start + count - 1]).abs().max()))
    return worst


def _logits(runner: Runner | Ranks, step: Step) -> torch.Tensor:
    """[rows, vocabulary]"""
    if isinstance(runner, Ranks):
        return runner.logits(step)
    hidden = runner.forward(step)
    assert hidden is not None
    return runner.logits(hidden)
