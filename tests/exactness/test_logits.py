"""Logits in float32 agree with transformers' within 1e-4, and text is therefore the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.models.logits import difference
from support.models.oracle import Oracle
from support.models.subject import Subject

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.errors import ModelError
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner

pytestmark = pytest.mark.timeout(1800)  # the first test of a model asks transformers; busy machines take tenfold
TOLERANCE = 1e-4
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
PROMPT = [(7 * index * index + 3) % 250 for index in range(90)]


@pytest.mark.parametrize("chunk", [1, 7, 16, 1000])
def test_logits_agree_with_transformers(subject: Subject, chunk: int) -> None:
    prompts = [prompt[:80] for prompt in sorted(subject.prompts, key=len)[-4:]]
    assert difference(subject.runner, subject.oracle, chunk, *prompts) < TOLERANCE


@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": 24},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"tie_word_embeddings": True},
        {"rope_theta": 500000.0},
        {"rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 20000.0},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 20000.0, **LLAMA3}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}},
    ],
    ids=str,
)
def test_every_setting_of_the_config_counts(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = random_checkpoint(tmp_path, config=config, shards=2)
    runner = Runner(RunnerConfig(folder, max_requests=1))
    assert difference(runner, Oracle(folder), 40, PROMPT) < TOLERANCE


def test_the_three_spellings_of_rope_scaling_are_one(tmp_path: Path) -> None:
    spellings: list[dict[str, Any]] = [
        {"rope_theta": 20000.0, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_theta": 20000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 20000.0, **LLAMA3}},
    ]
    results = [last_logits(tmp_path / str(index), spelling) for index, spelling in enumerate(spellings)]
    plain = last_logits(tmp_path / "plain", {"rope_theta": 20000.0})
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    assert not torch.allclose(results[0], plain, atol=1e-2), "the scaling must matter to this prompt"


def last_logits(folder: Path, config: dict[str, Any]) -> torch.Tensor:
    runner = Runner(RunnerConfig(random_checkpoint(folder, config=config), max_requests=1))
    admit, blocks = Admit(0, tuple(PROMPT), SamplingParams(), 0), Blocks(0, 0, tuple(range(6)))
    hidden = runner.forward(Step(1, Forward((admit,), (blocks,), (0,), (0,), (len(PROMPT),)), Sample()))
    assert hidden is not None
    return runner.logits(hidden)


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "foo"])
def test_an_unsupported_rope_type_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    folder = random_checkpoint(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": {"rope_type": kind, "factor": 2.0}}))
    with pytest.raises(ModelError, match=kind) as caught:
        Runner(RunnerConfig(folder))
    assert (caught.value.reason, Path(caught.value.file).name) == ("ModelInvalid", "config.json")
