"""A rank computes nothing of a step that its request state cannot mean, and says what is wrong with it."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.models.checkpoints import random_checkpoint
from support.worker.rank_processes import RankProcesses

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.errors import Fault
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step

FORWARD = Forward(
    admits=(Admit(0, (1, 2, 3), SamplingParams(), 0), Admit(1, (4, 5), SamplingParams(), 0)),
    blocks=(Blocks(0, 0, (0,)), Blocks(1, 0, (1,))),
    slots=(1, 0),
    starts=(0, 0),
    counts=(2, 3),
)


def test_a_rank_that_is_given_a_row_of_no_tokens_ends_and_names_the_row(tmp_path: Path) -> None:
    model = tmp_path / "model"
    random_checkpoint(model)
    ranks = RankProcesses(model, 1, 1, device="cpu", kv_cache_bytes=1 << 20)
    try:
        assert len(ranks.issue(Step(1, FORWARD, Sample((0, 1), (0, 0)))).result().ids) == 2
        with pytest.raises(Fault, match=r"InvalidStep.*row 0 \(slot 1, start 0, count 0\): no tokens"):
            ranks.issue(Step(2, replace(FORWARD, counts=(0, 3)), Sample((1,), (0,)))).result()
    finally:
        ranks.close()
