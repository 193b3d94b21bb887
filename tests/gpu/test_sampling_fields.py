"""In float32 a GPU gives the CPU's tokens and log-probabilities for whatever requests ask, alone and side by side."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.models.scores import same_scores
from support.worker.engine import Answer, LocalEngine
from support.worker.masking import Masking

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import FEATURES
from octavo.worker.messages.step import Masks
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, RunnerConfig

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

SIZE = 513  # rows of logits are not aligned, and a mask's last word has one bit
TOKENS, TOP = 24, 5
LENGTHS = (1, 2, 16, 33, 90, 150)
PROMPTS = [[(7 * index * index + 3 * length) % 250 for index in range(length)] for length in LENGTHS]
SHAPE = {
    "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": SIZE
}  # fmt: skip
EVERYTHING = SamplingParams(
    min_p=0.05, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.3,
    logit_bias=((400, 3.0), (12, -100.0)), bad_words=((5,), (512,)),
    allowed_token_ids=(*range(0, 513, 2), 5), min_tokens=6, forbidden=(2, 4, 512),
)  # fmt: skip
FIELDS: dict[str, SamplingParams] = {
    "min_p": SamplingParams(temperature=1.2, seed=3, min_p=0.2),
    "min_p before top_p": SamplingParams(temperature=1.5, top_p=0.7, seed=4, min_p=0.1),
    "min_p before top_k": SamplingParams(temperature=1.5, top_k=9, top_p=0.9, seed=4, min_p=0.1),
    "presence_penalty": SamplingParams(presence_penalty=1.5),
    "frequency_penalty": SamplingParams(frequency_penalty=0.8),
    "repetition_penalty": SamplingParams(repetition_penalty=1.5),
    "logit_bias": SamplingParams(logit_bias=((400, 4.0), (511, 3.5))),
    "allowed_token_ids": SamplingParams(allowed_token_ids=tuple(range(3, 513, 7))),
    "bad_words": SamplingParams(bad_words=tuple((token,) for token in range(0, 513, 2))),
    "min_tokens": SamplingParams(min_tokens=9, forbidden=tuple(range(0, 513, 3))),
    "logprobs": SamplingParams(logprobs=TOP),
    "logprobs of drawn tokens": SamplingParams(temperature=1.0, seed=8, logprobs=0),
    "prompt_logprobs": SamplingParams(prompt_logprobs=TOP),
    "everything": replace(EVERYTHING, temperature=0.9, seed=3, logprobs=20, prompt_logprobs=0),
}
MIXED = [
    SamplingParams(),
    FIELDS["everything"],
    SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=7),
    replace(EVERYTHING, logprobs=3),
    SamplingParams(temperature=1.4, top_p=0.9, seed=4, min_p=0.1, repetition_penalty=1.2, prompt_logprobs=2),
    SamplingParams(temperature=1.0, seed=5, logprobs=TOP),
]
WORK: dict[str, dict[str, int]] = {"a batch": {}, "chunks": {"max_batch_tokens": 29}, "preemption": {"blocks": 18}}


@dataclass(frozen=True)
class Pair:
    cpu: DeviceRunner
    gpu: DeviceRunner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("model"), seed=3, config=SHAPE)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[Pair]:
    cpu = open_runner(RunnerConfig(folder, device="cpu", max_requests=16, kv_cache_bytes=64 << 20))
    gpu = open_runner(on_gpu(folder))
    assert gpu.features == list(FEATURES)
    yield Pair(cpu, gpu)
    del gpu
    torch.cuda.empty_cache()


def on_gpu(folder: Path, dtype: str = "float32") -> RunnerConfig:
    return RunnerConfig(
        folder, device="cuda", dtype=dtype, max_requests=16, max_batch_tokens=1024, kv_cache_bytes=256 << 20
    )


def check(one: list[Answer], other: list[Answer], samplings: list[SamplingParams]) -> None:
    for expected, found, sampling in zip(one, other, samplings, strict=True):
        assert len(expected.ids) == TOKENS
        assert found.ids == expected.ids
        same_scores(expected.scores, found.scores, sampling.logprobs)
        if expected.prompt_scores or found.prompt_scores:
            same_scores(expected.prompt_scores, found.prompt_scores, sampling.prompt_logprobs)


def both(
    pair: Pair, samplings: list[SamplingParams], graphs: bool = True, engine: Any = LocalEngine, **setup: int
) -> Any:
    """The engine that ran on the GPU, after both gave the same."""
    expected = engine(pair.cpu).generate(PROMPTS, TOKENS, samplings)
    device = engine(pair.gpu, **setup)
    if graphs:
        device.capture()
    check(expected, device.generate(PROMPTS, TOKENS, samplings), samplings)
    return device


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_alone_is_served_as_on_the_cpu(pair: Pair, field: str) -> None:
    both(pair, [FIELDS[field]] * len(PROMPTS), graphs=False)


@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
@pytest.mark.parametrize("work", WORK)
def test_requests_of_all_kinds_run_side_by_side(pair: Pair, work: str, graphs: bool) -> None:
    engine = both(pair, MIXED, graphs, **WORK[work])
    assert (engine.scheduler.load().preemptions > 0) == (work == "preemption")


@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
def test_rows_that_grammars_bind_run_beside_others(pair: Pair, graphs: bool) -> None:
    both(pair, [SamplingParams()] * len(PROMPTS), graphs, Masking)
    both(pair, MIXED, graphs, Masking, max_batch_tokens=29)


def test_slots_that_requests_with_sampling_fields_leave_serve_others_plainly(pair: Pair) -> None:
    engine = LocalEngine(pair.gpu)
    engine.capture()
    plain = LocalEngine(pair.cpu).generate(PROMPTS, TOKENS)
    for _ in range(3):
        engine.generate(PROMPTS, 3, MIXED)
        assert [one.ids for one in engine.generate(PROMPTS, TOKENS)] == [one.ids for one in plain]


def test_masks_are_asked_for_when_the_pass_is_on_its_way(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.worker.runner.cuda.model_forward import ModelForward

    events: list[str] = []
    run = ModelForward.run

    def noted(model_forward: ModelForward, bucket: Any) -> Any:
        events.append("pass")
        return run(model_forward, bucket)

    class Noting(Masking):
        def ask(self, masks: Masks) -> Masks:
            events.append("masks")
            return masks

    monkeypatch.setattr(ModelForward, "run", noted)
    Noting(pair.gpu).generate(PROMPTS[3:4], 6)
    assert "masks" in events
    assert all(events[at - 1] == "pass" for at, event in enumerate(events) if event == "masks")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_serves_all_of_it_with_and_without_graphs(folder: Path, dtype: str) -> None:
    """The CPU does not: so what each request may get is looked at, not which."""
    runner = open_runner(on_gpu(folder, dtype))
    samplings = [SamplingParams(logprobs=TOP), replace(EVERYTHING, min_p=0.0, logprobs=TOP)] * 3
    engine = Masking(runner)
    eager = engine.generate(PROMPTS, TOKENS, samplings)
    engine.capture()
    for answers in (eager, engine.generate(PROMPTS, TOKENS, samplings)):
        assert all(len(answer.ids) == TOKENS for answer in answers)
        assert all(len(answer.scores) == TOKENS * 4 * (3 + 2 * TOP) for answer in answers)
        for answer in answers[1::2]:
            assert all(token % 2 == 0 or token == 5 for token in answer.ids)
    del engine, runner
    torch.cuda.empty_cache()
