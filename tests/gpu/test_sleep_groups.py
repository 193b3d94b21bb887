"""Ranks that share a model on two GPUs give their memory back together, and compute the same tokens after."""

from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.worker.engine import LocalEngine
from support.worker.rank_processes import RankProcesses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(150),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs"),
]
SHAPE = {
    "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)], ids=["tensor", "pipeline"])
def test_ranks_that_slept_give_the_same_tokens(tmp_path: Path, tensor: int, pipeline: int) -> None:
    model = random_checkpoint(tmp_path / "model", seed=3, config=SHAPE)
    ranks = RankProcesses(model, tensor, pipeline, device="cuda", max_requests=16, kv_cache_bytes=1 << 30)
    try:
        engine = LocalEngine(ranks, stages=pipeline)
        engine.capture()
        prompts = [list(range(1, 2 + 30 * place)) for place in range(6)]
        before = [answer.ids for answer in engine.generate(prompts, 32)]
        for keep_kv in (False, True):
            given = ranks.sleep(keep_kv)
            assert given > 0
            assert abs(ranks.wake() - given) < 64 << 20
            if not keep_kv:
                engine.forget()
            assert [answer.ids for answer in engine.generate(prompts, 32)] == before
    finally:
        ranks.close()
