"""Ranks that add up one half of the rows while they compute with the other give the logits of transformers."""

from pathlib import Path

import pytest
from support.models.checkpoints import random_checkpoint
from support.models.families import MODELS
from support.models.logits import difference
from support.models.oracle import Oracle
from support.worker.ranks import Ranks

from octavo.worker.runner.base import RunnerConfig

pytestmark = pytest.mark.timeout(600)  # seconds where nothing else runs
TOLERANCE = 1e-4
PROMPT = [(7 * index * index + 3) % 250 for index in range(91)]


@pytest.mark.parametrize("name", ["llama with biases", "qwen 3 with biases and windows"])
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (4, 2)])
def test_logits_agree_with_transformers(tmp_path: Path, name: str, tensor: int, pipeline: int) -> None:
    """Chunks of 45 and 1 tokens: odd halves, and a row that is not divided."""
    folder = random_checkpoint(tmp_path, seed=3, config=MODELS[name])
    config = RunnerConfig(folder, max_requests=8, kv_cache_bytes=16 << 20)
    group = Ranks(config, tensor, pipeline, late=True)
    assert difference(group, Oracle(folder), 45, PROMPT) < TOLERANCE
    group.close()
