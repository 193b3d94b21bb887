"""Every architecture that is served gives on a GPU the logits and the text of transformers on the same GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models import gpu_logits
from support.models.checkpoints import EOS, random_checkpoint
from support.models.families import MODELS
from support.worker.engine import LocalEngine

from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import RunnerConfig

pytest.importorskip("transformers")
from support.models.oracle import Oracle

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TOKENS = 48
# In float32, of the logits' standard deviation: products of cuBLAS and ours add up in another order.
EXACT = 1e-4
# In bfloat16, times what transformers itself loses by it: a like loss, and two that are independent of each other.
LOSS, APART = 1.3, 2.0
LENGTHS = (1, 15, 16, 17, 20, 22, 47, 90, 200)
PROMPTS = [[(7 * index * index + 3 * length) % 250 for index in range(length)] for length in LENGTHS]
SIZES = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64}


@dataclass(frozen=True)
class Model:
    folder: Path
    exact: Oracle
    half: Oracle


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    config = {**MODELS[request.param], **SIZES}
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=3, config=config)
    half = Oracle(folder, "cuda", torch.bfloat16)
    yield Model(folder, Oracle(folder, "cuda"), half)
    torch.cuda.empty_cache()


def settings(folder: Path, dtype: str) -> RunnerConfig:
    return RunnerConfig(
        folder, device="cuda", dtype=dtype, max_requests=16, max_batch_tokens=512, kv_cache_bytes=256 << 20
    )


def test_logits_in_float32_agree_with_transformers(model: Model) -> None:
    runner = open_runner(settings(model.folder, "float32"))
    for prompt in PROMPTS:
        expected = model.exact.logits(prompt)
        apart = (gpu_logits.of(runner, prompt) - expected).abs().max() / expected.std()
        assert float(apart) < EXACT, f"of a prompt of {len(prompt)} tokens"


@pytest.mark.parametrize("work", [{}, {"max_batch_tokens": 40}], ids=["a batch", "chunks"])
def test_greedy_text_in_float32_is_that_of_transformers(model: Model, work: dict[str, Any]) -> None:
    engine = LocalEngine(open_runner(settings(model.folder, "float32")), **work)
    engine.capture()
    for prompt, answer in zip(PROMPTS, engine.generate(PROMPTS, TOKENS, stop_ids=[EOS]), strict=True):
        model.exact.confirm(prompt, answer.ids, TOKENS)


def test_log_probabilities_in_bfloat16_agree_with_transformers_but_for_rounding(model: Model) -> None:
    """Of each prompt's own tokens. Random weights lose more than a trained model's (benchmarks/accuracy.py)."""
    runner = open_runner(settings(model.folder, "bfloat16"))
    ours, half, exact = (
        torch.cat([scores(logits(prompt), prompt) for prompt in PROMPTS])
        for logits in (lambda prompt: gpu_logits.of(runner, prompt), model.half.logits, model.exact.logits)
    )
    apart, lost, theirs = (
        float((one - other).abs().mean()) for one, other in ((ours, half), (ours, exact), (half, exact))
    )
    print(f"log-probabilities differ by {apart:.5f}; from float32 {lost:.5f}, transformers' {theirs:.5f}")
    assert lost < LOSS * theirs
    assert apart < APART * theirs


def scores(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """The log-probability of each token but the first."""
    following = torch.tensor(ids[1:], dtype=torch.long)[:, None]
    return logits[:-1].double().log_softmax(-1).gather(1, following)[:, 0]
