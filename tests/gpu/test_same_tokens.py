"""In float32 a GPU gives the CPU's tokens, however the engine cuts, shares and repeats the work."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.worker.engine import Answer, LocalEngine

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, RunnerConfig

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TOKENS = 48
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 64, 100, 129, 200, 257)
SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64},
    "alone": {"hidden_size": 192, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 96},
    "wide": {"hidden_size": 256, "num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 128},
    "a window": {
        "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 50,
    },
    "windows above": {
        "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "sliding_window": 21,
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": True,
        "max_window_layers": 1,
    },
    "norms of heads": {
        "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    },
}  # fmt: skip
SAMPLED = SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=7)


@dataclass(frozen=True)
class Pair:
    cpu: DeviceRunner
    gpu: DeviceRunner
    prompts: list[list[int]]
    greedy: list[list[int]]
    sampled: list[list[int]]


def ids(answers: list[Answer]) -> list[list[int]]:
    return [answer.ids for answer in answers]


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=3, config=SHAPES[request.param])
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    cpu = open_runner(RunnerConfig(folder, device="cpu", max_requests=32, kv_cache_bytes=64 << 20))
    greedy, sampled = (ids(LocalEngine(cpu).generate(prompts, TOKENS, how)) for how in (SamplingParams(), SAMPLED))
    gpu = open_runner(runner_config(folder))
    yield Pair(cpu, gpu, prompts, greedy, sampled)
    del gpu
    torch.cuda.empty_cache()


def runner_config(folder: Path) -> RunnerConfig:
    return RunnerConfig(
        folder, device="cuda", dtype="float32", max_requests=32, max_batch_tokens=1024, kv_cache_bytes=256 << 20
    )


def test_requests_together_without_graphs(pair: Pair) -> None:
    assert ids(LocalEngine(pair.gpu).generate(pair.prompts, TOKENS)) == pair.greedy


def test_requests_together_in_graphs(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu)
    engine.capture()
    assert ids(engine.generate(pair.prompts, TOKENS)) == pair.greedy
    assert ids(engine.generate(pair.prompts, TOKENS)) == pair.greedy, "a second time, from the prefix cache"


def test_a_request_alone(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu)
    engine.capture()
    assert [ids(engine.generate([prompt], TOKENS))[0] for prompt in pair.prompts] == pair.greedy


def test_small_chunks_beside_decoding(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu, max_batch_tokens=40)
    engine.capture()
    assert ids(engine.generate(pair.prompts, TOKENS)) == pair.greedy


def test_preempted_requests(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu, blocks=-(-(max(LENGTHS) + TOKENS) // 16) + 4)
    engine.capture()
    assert ids(engine.generate(pair.prompts, TOKENS)) == pair.greedy
    assert engine.scheduler.load().preemptions > 0


def test_drawn_tokens(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu)
    engine.capture()
    assert ids(engine.generate(pair.prompts, TOKENS, SAMPLED)) == pair.sampled


def test_a_row_that_is_not_sampled_may_stand_before_one_that_is(pair: Pair) -> None:
    """Each of one token: the chunk of a prompt that goes on, and a prompt's last."""
    admits = tuple(Admit(slot, ids, SamplingParams(), 0) for slot, ids in enumerate(((7, 8, 9), (200,), (31,))))
    blocks = tuple(Blocks(slot, 0, (slot,)) for slot in range(3))
    forward = Forward(admits, blocks, slots=(0, 1, 2), starts=(0, 0, 0), counts=(1, 1, 1))
    step = Step(1, forward, Sample(rows=(1, 2), counters=(0, 0)))
    assert pair.gpu.issue(step).result().ids == pair.cpu.issue(step).result().ids
