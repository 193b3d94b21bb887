"""The logits of a prompt's every position on a GPU, of all columns or of one rank's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.messages.step import Admit, Blocks, Forward
from octavo.worker.runner.base import DeviceRunner, RunnerConfig
from octavo.worker.runner.cuda import collectives
from octavo.worker.runner.cuda.runner import CudaRunner
from octavo.worker.topology import Layout, RankPosition


def of(runner: DeviceRunner, prompt: Sequence[int]) -> torch.Tensor:
    """[tokens, columns] float32, on the host."""
    assert isinstance(runner, CudaRunner)
    blocks = Blocks(0, 0, tuple(range(-(-len(prompt) // 16))))
    admit = Admit(0, tuple(prompt), SamplingParams(), 0)
    return runner.logits(Forward((admit,), (blocks,), (0,), (0,), (len(prompt),))).float().cpu()


def of_rank(
    gloo: Gloo, folder: Path, settings: dict[str, Any], prompt: Sequence[int], large: int | None
) -> torch.Tensor:
    """Of its columns. large: bytes of what is large to the ranks' sums; None: what they think themselves."""
    collectives._LARGE_BYTES = large or collectives._LARGE_BYTES
    position = RankPosition(Layout(gloo.size, 1, gloo.size), gloo.rank)
    return of(CudaRunner(RunnerConfig(folder, device="cuda", position=position, **settings), collective=gloo), prompt)
