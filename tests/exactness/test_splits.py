"""However a model is split over ranks, the text is that of one rank; and logits agree with transformers'."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file
from support.models.checkpoints import random_checkpoint
from support.models.logits import difference
from support.models.oracle import Oracle
from support.processes.threads import ThreadCollective
from support.worker.engine import LocalEngine
from support.worker.ranks import QueueLinks, Ranks

from octavo import bundled
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step, StepResult
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner

pytestmark = pytest.mark.timeout(600)  # seconds where nothing else runs
TOLERANCE = 1e-4
TOKENS = 20
VOCABULARY = 513  # 2 and 4 ranks pad it
PROMPTS = [[(7 * index * index + 3 * length) % 250 for index in range(length)] for length in (1, 16, 20, 33, 47, 90)]
SPLITS = [(1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (4, 4)]  # tensor, pipeline
TIED = (False, True)  # whether the embeddings are the head too
# How the engine is set up, by what happens then.
WORK: dict[str, dict[str, int]] = {
    "a batch": {},
    "chunked prefill beside decoding": {"max_batch_tokens": 29},
    "preemption": {"blocks": 26},
}
SAMPLING = [  # of all prompts in turn, greedy and drawn in one batch
    *[SamplingParams()] * len(PROMPTS),
    SamplingParams(temperature=0.9, seed=3),
    SamplingParams(temperature=0.9, top_k=20, seed=4),
    SamplingParams(temperature=1.3, top_p=0.8, seed=5),
    SamplingParams(temperature=1.1, top_k=300, top_p=0.95, seed=6),
    SamplingParams(),
    SamplingParams(temperature=100.0, seed=7),  # finds what has any probability, if it pads the vocabulary
]
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 24, "attention_bias": True}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 21}


def settings(folder: Path, **more: Any) -> RunnerConfig:
    return RunnerConfig(folder, max_requests=len(SAMPLING), kv_cache_bytes=16 << 20, **more)


Texts = list[list[int]]


def texts(runner: Runner | Ranks, **setup: int) -> Texts:
    stages = runner.stages if isinstance(runner, Ranks) else 1
    engine = LocalEngine(runner, stages=stages, **setup)
    answers = [answer.ids for answer in engine.generate(PROMPTS * 2, TOKENS, SAMPLING)]
    assert (engine.scheduler.load().preemptions > 0) == ("blocks" in setup)
    return answers


@dataclass(frozen=True)
class Case:
    """A split of a model, and what one rank answers."""

    ranks: Ranks
    whole: Texts


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """By whether embeddings are the head too."""

    def made(tied: bool) -> Path:
        config = {"vocab_size": VOCABULARY, "tie_word_embeddings": tied}
        return random_checkpoint(tmp_path_factory.mktemp("model"), seed=5, shards=2, config=config)

    return {tied: made(tied) for tied in TIED}


@pytest.fixture(scope="module")
def wholes(folders: dict[bool, Path]) -> dict[bool, Texts]:
    return {tied: texts(Runner(settings(folder))) for tied, folder in folders.items()}


@pytest.fixture(
    scope="module",
    params=[(tied, *split) for tied in TIED for split in SPLITS],
    ids=lambda case: f"{'tied' if case[0] else 'untied'}, tensor {case[1]} pipeline {case[2]}",
)
def case(request: pytest.FixtureRequest, folders: dict[bool, Path], wholes: dict[bool, Texts]) -> Iterator[Case]:
    tied, tensor, pipeline = request.param
    group = Ranks(settings(folders[tied]), tensor, pipeline)
    yield Case(group, wholes[tied])
    group.close()


@pytest.mark.parametrize("work", WORK)
def test_text_is_that_of_one_rank(case: Case, work: str) -> None:
    assert texts(case.ranks, **WORK[work]) == case.whole


def test_ids_that_pad_the_vocabulary_have_no_probability(case: Case) -> None:
    """So that what is left has all of it."""
    logits = case.ranks.logits(one_row(PROMPTS[-1]))
    chances = logits.double().log_softmax(-1)
    assert logits.shape == (1, VOCABULARY) and float(chances.exp().sum()) == pytest.approx(1, abs=1e-12)


def one_row(ids: list[int]) -> Step:
    blocks = Blocks(0, 0, tuple(range(-(-len(ids) // 16))))
    return Step(1, Forward((Admit(0, tuple(ids), SamplingParams(), 0),), (blocks,), (0,), (0,), (len(ids),)), Sample())


def test_a_step_without_rows_goes_every_way_that_others_go(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an idle group learns of a link that is lost."""
    calls: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        function = getattr(owner, name)

        def counted(self: object, *arguments: object) -> Any:  # Any: of the function
            calls[name] += 1
            return function(self, *arguments)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in ((QueueLinks, "send_hidden"), (QueueLinks, "send_sampled"), (ThreadCollective, "gather")):
        count(owner, name)
    assert case.ranks.issue(Step(1, Forward(), Sample())).result() == StepResult(1)
    layout = case.ranks.layout
    handed_on = layout.tensor * (layout.pipeline - 1)
    sampled = layout.tensor if layout.pipeline > 1 else 0
    assert calls == Counter(gather=layout.ranks, send_hidden=handed_on, send_sampled=sampled)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)])
def test_processes_that_sum_by_gloo_give_the_text_of_one_rank(
    folders: dict[bool, Path], wholes: dict[bool, Texts], tmp_path: Path, tensor: int, pipeline: int
) -> None:
    group = Ranks(settings(folders[False]), tensor, pipeline, tmp_path)
    try:
        assert texts(group) == wholes[False]
    finally:
        group.close()


@pytest.mark.parametrize(
    ("config", "tensor", "pipeline"),
    [(QWEN3, 4, 2), (QWEN3, 2, 1), (MISTRAL, 2, 2), (MISTRAL, 1, 3)],
    ids=["qwen 3, 4x2", "qwen 3, 2x1", "mistral, 2x2", "mistral, 1x3"],
)
def test_logits_of_other_families_agree_with_transformers(
    tmp_path: Path, config: dict[str, Any], tensor: int, pipeline: int
) -> None:
    folder = random_checkpoint(tmp_path, seed=3, config=config)
    group = Ranks(settings(folder), tensor, pipeline)
    assert difference(group, Oracle(folder), 40, PROMPTS[-1]) < TOLERANCE
    group.close()


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (1, 2)])
def test_logits_of_smollm2_agree_with_transformers(tensor: int, pipeline: int) -> None:
    folder = bundled.ensure("smollm2-135m-instruct")
    group = Ranks(settings(folder, context_length=512), tensor, pipeline)
    assert difference(group, Oracle(folder), 40, list(range(1000, 1060))) < TOLERANCE
    group.close()


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)])
def test_a_row_that_fails_leaves_nothing_in_blocks_that_a_step_zeroes(
    tmp_path: Path, tensor: int, pipeline: int
) -> None:
    folder = spoilt(random_checkpoint(tmp_path, seed=5), "model.embed_tokens.weight", row=300)
    group = Ranks(settings(folder, dtype="bfloat16"), tensor, pipeline)  # whose kernels mask what others do not read
    expected = in_two_chunks(group, number=1)
    bad = replace(one_row([*PROMPTS[4], *[300] * 17]), number=3, sample=Sample((0,), (0,)))
    assert group.issue(bad).result().failed == (0,)
    assert torch.equal(in_two_chunks(group, number=4, zeroed=tuple(range(8))), expected)
    group.close()


def in_two_chunks(group: Ranks, number: int, zeroed: tuple[int, ...] = ()) -> torch.Tensor:
    """The logits at the end of a prompt whose last block is not full."""
    whole = one_row(PROMPTS[3])
    group.logits(replace(whole, number=number, forward=replace(whole.forward, counts=(20,), zeroed=zeroed)))
    rest = Forward(slots=(0,), starts=(20,), counts=(len(PROMPTS[3]) - 20,))
    return group.logits(Step(number + 1, rest, Sample()))


def test_what_one_rank_sees_is_not_finite_fails_the_row(tmp_path: Path) -> None:
    folder = spoilt(random_checkpoint(tmp_path, seed=5), "lm_head.weight", row=400)
    group = Ranks(settings(folder), 4, 1)
    step = replace(one_row(PROMPTS[2]), sample=Sample((0,), (0,)))
    assert group.issue(step).result().failed == (0,)
    group.close()


def spoilt(folder: Path, name: str, row: int) -> Path:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[name][row] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    return folder
