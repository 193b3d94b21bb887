"""A step in halves, of which each is added up on a stream of its own, is the step that was computed at once."""

from collections.abc import Callable
from pathlib import Path

import torch
from pytest import mark
from support.models import gpu_logits
from support.models.checkpoints import random_checkpoint

from octavo.worker.models.decoder import Decoder
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cuda.runner import CudaRunner

pytestmark = [mark.gpu, mark.timeout(120)]

PROMPT = [(7 * index * index + 3) % 250 for index in range(301)]
SLOW_CYCLES = 2_000_000  # a millisecond: much longer than any product here


class Slow:
    """Adds up one rank's rows, late, and has spoilt them until then."""

    def __init__(self) -> None:
        self.sums = 0
        self._side = torch.cuda.Stream()

    def overlaps(self, x: torch.Tensor) -> bool:
        return True

    def begin_sum(self, x: torch.Tensor) -> Callable[[], None]:
        self.sums += 1
        computing = torch.cuda.current_stream()
        self._side.wait_stream(computing)
        with torch.cuda.stream(self._side):
            right = x.clone()
            x.fill_(torch.nan)
            torch.cuda._sleep(SLOW_CYCLES)
            x.copy_(right)
        right.record_stream(self._side)
        summed = self._side.record_event()
        return lambda: computing.wait_event(summed)


@mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_agree_with_the_wholes(tmp_path: Path, dtype: str) -> None:
    shape = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
    folder = random_checkpoint(tmp_path, seed=3, config=shape)
    runner = CudaRunner(RunnerConfig(folder, dtype=dtype, max_requests=4, kv_cache_bytes=64 << 20))
    whole = gpu_logits.of(runner, PROMPT)
    decoder: Decoder = runner._model
    decoder._overlapping = slow = Slow()
    halves = gpu_logits.of(runner, PROMPT)
    assert slow.sums == 2 * 2 * 4, "of two halves, twice a layer"
    apart = float((halves - whole).abs().max() / whole.abs().max())
    assert apart < (1e-5 if dtype == "float32" else 0.02)
