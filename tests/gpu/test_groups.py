"""A group of several GPUs gives the tokens of one, however the model is split over them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models import gpu_logits, gpu_sampling
from support.models.checkpoints import random_checkpoint
from support.models.gpu_ranks import on_gpus
from support.models.scores import same_scores
from support.worker.engine import Answer, LocalEngine
from support.worker.masking import Masking
from support.worker.rank_processes import RankProcesses

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import FEATURES
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import RunnerConfig

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

LOADED_S = 60.0  # PyTorch's import and CUDA's start are most of it
TOKENS = 40
LENGTHS = (1, 2, 15, 16, 17, 33, 64, 129, 257)
SPLITS = [(2, 1), (1, 2), (2, 2), (4, 1)]  # tensor, pipeline
SHAPE = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 513}
# What ranks run first in a test where no GPU reaches another's memory.
APART = """
from octavo.kernels.cuda import library
from octavo.kernels.cuda.collectives import ipc
def refuse(size):
    raise library.KernelError("a test wants it so")
ipc.make = refuse
"""
DRAWS = [
    SamplingParams(),
    SamplingParams(temperature=0.9, seed=3),
    SamplingParams(temperature=0.9, top_k=20, seed=4),
    SamplingParams(temperature=1.3, top_p=0.8, seed=5),
    SamplingParams(temperature=1.1, top_k=300, top_p=0.95, seed=6),
    SamplingParams(temperature=100.0, seed=7),
]
# Other vocabularies than powers of two: each rank has an odd number of columns, and the last one some that pad.
EVERYTHING = SamplingParams(
    min_p=0.05, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.3,
    logit_bias=((400, 3.0), (12, -100.0)), bad_words=((5,), (512,)),
    allowed_token_ids=(*range(0, 513, 2), 5), min_tokens=6, forbidden=(2, 4, 512),
)  # fmt: skip
ASKED = [
    SamplingParams(presence_penalty=1.5, repetition_penalty=1.4),
    SamplingParams(temperature=1.2, seed=3, min_p=0.2),
    SamplingParams(logprobs=5, prompt_logprobs=3),
    SamplingParams(),
    replace(EVERYTHING, temperature=0.9, seed=3, top_k=40, logprobs=20, prompt_logprobs=0),
    SamplingParams(logit_bias=((400, 4.0), (511, 3.5)), min_tokens=9, forbidden=tuple(range(0, 513, 3))),
    SamplingParams(temperature=1.0, seed=8, logprobs=0),
]
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_requests": 32,
    "max_batch_tokens": 512,
    "kv_cache_bytes": 128 << 20,
}


@dataclass(frozen=True)
class Whole:
    """A model, and what one GPU answers."""

    folder: Path
    prompts: list[list[int]]
    greedy: list[list[int]]
    drawn: list[list[int]]
    asked: list[Answer]
    bound: list[Answer]


def draws() -> list[SamplingParams]:
    return [DRAWS[index % len(DRAWS)] for index in range(len(LENGTHS))]


def asked() -> list[SamplingParams]:
    return [ASKED[index % len(ASKED)] for index in range(len(LENGTHS))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=3, config=SHAPE)
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    runner = open_runner(RunnerConfig(folder, device="cuda", **SETTINGS))
    engine = LocalEngine(runner)
    greedy, drawn = (
        [answer.ids for answer in engine.generate(prompts, TOKENS, how)] for how in (SamplingParams(), draws())
    )
    bound = Masking(runner).generate(prompts, TOKENS, asked())
    return Whole(folder, prompts, greedy, drawn, engine.generate(prompts, TOKENS, asked()), bound)


@pytest.fixture(scope="module", params=SPLITS, ids=lambda split: f"tensor{split[0]}-pipeline{split[1]}")
def group(request: pytest.FixtureRequest, whole: Whole) -> Iterator[RankProcesses]:
    tensor, pipeline = request.param
    if torch.cuda.device_count() < tensor * pipeline:
        pytest.skip(f"needs {tensor * pipeline} GPUs")
    ranks = RankProcesses(whole.folder, tensor, pipeline, LOADED_S, device="cuda", **SETTINGS)
    yield ranks
    ranks.close()


def texts(group: RankProcesses, whole: Whole, how: Any = SamplingParams(), graphs: bool = True, **setup: int) -> Any:  # noqa: B008
    engine = LocalEngine(group, stages=group.layout.pipeline, **setup)
    if graphs:
        engine.capture()
    return [answer.ids for answer in engine.generate(whole.prompts, TOKENS, how)]


def test_requests_together_without_graphs(group: RankProcesses, whole: Whole) -> None:
    assert texts(group, whole, graphs=False) == whole.greedy


def test_requests_together_in_graphs(group: RankProcesses, whole: Whole) -> None:
    assert texts(group, whole) == whole.greedy


def test_small_chunks_beside_decoding(group: RankProcesses, whole: Whole) -> None:
    assert texts(group, whole, max_batch_tokens=40) == whole.greedy


def test_preempted_requests(group: RankProcesses, whole: Whole) -> None:
    assert texts(group, whole, blocks=-(-(max(LENGTHS) + TOKENS) // 16) + 4) == whole.greedy


def test_drawn_tokens(group: RankProcesses, whole: Whole) -> None:
    assert texts(group, whole, draws()) == whole.drawn


@pytest.mark.parametrize("work", [{}, {"max_batch_tokens": 40}], ids=["a batch", "chunks"])
@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
def test_what_few_requests_ask(group: RankProcesses, whole: Whole, graphs: bool, work: dict[str, int]) -> None:
    assert group.features == list(FEATURES)
    engine = LocalEngine(group, stages=group.layout.pipeline, **work)
    if graphs:
        engine.capture()
    same(whole.asked, engine.generate(whole.prompts, TOKENS, asked()))
    assert texts(group, whole, graphs=graphs) == whole.greedy, "slots that they left"


@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
def test_rows_that_grammars_bind(group: RankProcesses, whole: Whole, graphs: bool) -> None:
    engine = Masking(group, stages=group.layout.pipeline)
    if graphs:
        engine.capture()
    same(whole.bound, engine.generate(whole.prompts, TOKENS, asked()))


def same(expected: list[Answer], found: list[Answer]) -> None:
    for one, other, how in zip(expected, found, asked(), strict=True):
        assert other.ids == one.ids
        same_scores(one.scores, other.scores, how.logprobs)
        if one.prompt_scores or other.prompt_scores:
            same_scores(one.prompt_scores, other.prompt_scores, how.prompt_logprobs)


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_call_of_a_step_waits_for_the_device(whole: Whole, ranks: int) -> None:
    """Whatever its rows want: filters, penalties, log-probabilities, masks. And every rank has what all have drawn."""
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    found = on_gpus(ranks, gpu_sampling.of_rank, whole.folder, SETTINGS, whole.prompts, TOKENS, asked())
    for answers in found:
        same(whole.bound, answers)


@pytest.mark.parametrize(("tensor", "pipeline", "path"), [(2, 1, "nccl"), (1, 2, "local")])
def test_gpus_that_do_not_reach_each_other(whole: Whole, tensor: int, pipeline: int, path: str) -> None:
    if torch.cuda.device_count() < tensor * pipeline:
        pytest.skip(f"needs {tensor * pipeline} GPUs")
    group = RankProcesses(whole.folder, tensor, pipeline, LOADED_S, before=APART, device="cuda", **SETTINGS)
    try:
        assert group.path == path
        assert texts(group, whole) == whole.greedy
        assert texts(group, whole, draws()) == whole.drawn
        engine = Masking(group, stages=group.layout.pipeline)
        engine.capture()
        same(whole.bound, engine.generate(whole.prompts, TOKENS, asked()))
    finally:
        group.close()


@pytest.mark.parametrize(
    ("dtype", "most", "large"),
    [("float32", 1e-4, None), ("bfloat16", 0.06, None), ("bfloat16", 0.06, 4096)],
    ids=["float32", "bfloat16", "bfloat16 in halves"],
)
def test_logits_of_ranks_that_add_up_agree_with_one_ranks(
    whole: Whole, dtype: str, most: float, large: int | None
) -> None:
    """Relative to the largest. In bfloat16 each rank rounds what it adds. large: bytes above which one half of the rows
    is added up while the other is computed."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    settings = {**SETTINGS, "dtype": dtype}
    prompt = whole.prompts[-1]
    alone = gpu_logits.of(open_runner(RunnerConfig(whole.folder, device="cuda", **settings)), prompt)
    parts = on_gpus(2, gpu_logits.of_rank, whole.folder, settings, prompt, large)
    apart = float((torch.cat(parts, dim=1)[:, : alone.shape[1]] - alone).abs().max() / alone.abs().max())
    print(f"{dtype}: logits differ by {apart:.2e} of the largest")
    assert apart < most
