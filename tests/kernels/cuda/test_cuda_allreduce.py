"""Ranks on several GPUs add up to the same bits as the sum in their order, whatever the size, the pace and the turn."""

import pytest
import torch
from support.models import gpu_sums
from support.models.gpu_ranks import on_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(90)]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("work", ["sums", "norms", "in_a_hurry", "in_a_graph", "by_nccl"])
def test_every_rank_has_the_right_bits(work: str, ranks: int) -> None:
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    assert on_gpus(ranks, getattr(gpu_sums, work)) == [[]] * ranks
