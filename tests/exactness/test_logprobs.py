"""Log-probabilities and penalties agree with transformers', however the engine cuts, repeats and splits the work."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.models.oracle import Oracle
from support.models.scores import TOLERANCE, same_scores
from support.worker.engine import Answer, LocalEngine
from support.worker.ranks import Ranks
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner

TOKENS = 20
TOP = 5
PROMPTS = [[(7 * index * index + 3 * length) % 250 for index in range(length)] for length in (1, 2, 16, 33, 90)]
SCORED = SamplingParams(logprobs=TOP, prompt_logprobs=TOP)
WORK: dict[str, dict[str, int]] = {"a batch": {}, "chunks": {"max_batch_tokens": 21}, "preemption": {"blocks": 9}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("model"), seed=5, config={"vocab_size": 513})


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Runner:
    return Runner(settings(folder))


def settings(folder: Path) -> RunnerConfig:
    return RunnerConfig(folder, max_requests=8, kv_cache_bytes=16 << 20)


def unpacked(scores: bytes) -> list[tuple[int, list[int], list[float]]]:
    """(rank, ids, log-probabilities) of each token."""
    found = struct.iter_unpack(f"<I{1 + TOP}I{1 + TOP}f", scores)
    return [(row[0], list(row[1 : 2 + TOP]), list(row[2 + TOP :])) for row in found]


def check(scores: bytes, tokens: list[int], expected: torch.Tensor) -> None:
    """expected: [tokens, vocabulary] logits of transformers."""
    rows = unpacked(scores)
    assert len(rows) == len(tokens)
    for (rank, ids, values), token, exact in zip(rows, tokens, expected.log_softmax(-1), strict=True):
        assert ids[0] == token and rank == 1 + int((exact > exact[token]).sum())
        assert max(abs(value - float(exact[index])) for index, value in zip(ids, values, strict=True)) < TOLERANCE
        assert values[1:] == sorted(values[1:], reverse=True)
        assert set(ids[1:]) == set(exact.topk(TOP).indices.tolist())


@pytest.mark.parametrize("work", WORK)
def test_log_probabilities_of_prompt_and_answer_agree_with_transformers(
    runner: Runner, oracle: Oracle, work: str
) -> None:
    engine = LocalEngine(runner, **WORK[work])
    for _ in range(2):  # the second time there would be hits
        answers = engine.generate(PROMPTS, TOKENS, SCORED)
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            logits = oracle.logits([*prompt, *answer.ids])
            check(answer.prompt_scores, prompt[1:], logits[: len(prompt) - 1])
            check(answer.scores, answer.ids, logits[len(prompt) - 1 : -1])
            assert answer.cached == 0
    assert (engine.scheduler.load().preemptions > 0) == (work == "preemption")


def test_masks_and_penalties_do_not_change_the_log_probabilities(runner: Runner, oracle: Oracle) -> None:
    sampling = SamplingParams(
        temperature=0.7, top_k=1, allowed_token_ids=tuple(range(40)), repetition_penalty=1.5, logit_bias=((3, 50.0),),
        logprobs=TOP,
    )  # fmt: skip
    (answer,) = LocalEngine(runner).generate(PROMPTS[3:4], TOKENS, sampling)
    assert max(answer.ids) < 40
    check(answer.scores, answer.ids, oracle.logits([*PROMPTS[3], *answer.ids])[len(PROMPTS[3]) - 1 : -1])


def test_a_request_that_does_not_ask_gets_no_log_probabilities(runner: Runner) -> None:
    sampling = [SamplingParams(), SCORED, SamplingParams(), SCORED, SamplingParams()]
    answers = LocalEngine(runner).generate(PROMPTS, TOKENS, sampling)
    assert [bool(answer.scores) for answer in answers] == [False, True] * 2 + [False]
    assert [bool(answer.prompt_scores) for answer in answers] == [False, True] * 2 + [False]


def likeliest(oracle: Oracle, prompt: list[int], answer: list[int], processors: Any) -> list[int]:
    """By transformers and its processors, after the prompt and each token of the answer. All but the last of them are
    the answer exactly when that is the greedy one."""
    ids = [*prompt, *answer]
    logits = oracle.logits(ids, last=len(answer) + 1)
    rows = enumerate(logits.split(1), start=len(prompt))
    return [int(processors(torch.tensor([ids[:at]]), scores.clone()).argmax()) for at, scores in rows]


def check_all(oracle: Oracle, answers: list[Answer], processors: Any) -> None:
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert len(answer.ids) == TOKENS
        assert answer.ids == likeliest(oracle, prompt, answer.ids, processors)[:-1]


@pytest.mark.parametrize("penalty", [0.7, 1.3, 2.0])
def test_the_repetition_penalty_is_that_of_transformers(runner: Runner, oracle: Oracle, penalty: float) -> None:
    answers = greedy(runner, SamplingParams(repetition_penalty=penalty))
    check_all(oracle, answers, LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty)]))


def greedy(runner: Runner, how: SamplingParams, stop_ids: tuple[int, ...] = (), **setup: int) -> list[Answer]:
    return LocalEngine(runner, **setup).generate(PROMPTS, TOKENS, how, stop_ids)


def test_single_bad_words_agree_with_transformers(runner: Runner, oracle: Oracle) -> None:
    free = [answer.ids for answer in greedy(runner, SamplingParams())]
    bad = sorted({token for ids in free for token in ids[:3]})
    answers = greedy(runner, SamplingParams(bad_words=tuple((token,) for token in bad)))
    check_all(oracle, answers, LogitsProcessorList([NoBadWordsLogitsProcessor([[token] for token in bad])]))


def test_min_tokens_is_that_of_transformers(runner: Runner, oracle: Oracle) -> None:
    free = [answer.ids for answer in greedy(runner, SamplingParams())]
    for prompt, ids in zip(PROMPTS, free, strict=True):
        end = ids[4]
        sampling = SamplingParams(min_tokens=9, forbidden=(end,))
        (answer,) = LocalEngine(runner).generate([prompt], TOKENS, sampling, stop_ids=[end])
        minimum = MinNewTokensLengthLogitsProcessor(len(prompt), 9, end, device="cpu")
        expected = likeliest(oracle, prompt, answer.ids, LogitsProcessorList([minimum]))
        assert answer.ids == expected[:-1] and end not in answer.ids
        assert len(answer.ids) == TOKENS or (len(answer.ids) >= 9 and expected[-1] == end)


def test_presence_and_frequency_count_what_was_generated_and_not_the_prompt(runner: Runner, oracle: Oracle) -> None:
    def penalised(ids: torch.Tensor, scores: torch.Tensor, prompt: int) -> torch.Tensor:
        counts = torch.bincount(ids[0, prompt:], minlength=scores.shape[1])
        return scores - 0.8 * (counts > 0) - 0.3 * counts

    answers = greedy(runner, SamplingParams(presence_penalty=0.8, frequency_penalty=0.3))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        processors: Any = lambda ids, scores, prompt=prompt: penalised(ids, scores, len(prompt))  # noqa: E731
        assert len(answer.ids) == TOKENS
        assert answer.ids == likeliest(oracle, prompt, answer.ids, processors)[:-1]


PENALISED = SamplingParams(
    min_p=0.05, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.3,
    logit_bias=((400, 3.0), (12, -100.0)), bad_words=((5,), (512,)),
    allowed_token_ids=(*range(0, 513, 2), 5), min_tokens=6, forbidden=(2, 4, 512),
)  # fmt: skip
MIXED = [
    replace(PENALISED, logprobs=3),
    replace(PENALISED, temperature=0.9, seed=3, logprobs=0),
    SamplingParams(temperature=1.4, top_p=0.9, seed=4, min_p=0.1, repetition_penalty=1.2),
    SamplingParams(temperature=0.9, seed=3, prompt_logprobs=TOP),
    SamplingParams(logprobs=TOP, prompt_logprobs=2),
]


@pytest.fixture(scope="module")
def alone(runner: Runner) -> list[Answer]:
    """What one rank answers."""
    return LocalEngine(runner).generate(PROMPTS, TOKENS, MIXED)


@pytest.mark.parametrize("split", [(2, 1), (4, 1), (1, 2), (2, 2), (1, 4)], ids=str)
@pytest.mark.parametrize("setup", [{}, {"max_batch_tokens": 29}, {"blocks": 10}], ids=str)
def test_text_is_the_same_for_any_split(folder: Path, alone: list[Answer], split: tuple, setup: dict[str, int]) -> None:
    check_split(alone, Ranks(settings(folder), *split), **setup)


def test_processes_that_sum_by_gloo_give_the_same(folder: Path, alone: list[Answer], tmp_path: Path) -> None:
    check_split(alone, Ranks(settings(folder), 2, 2, tmp_path))


def test_the_tokens_own_alone_needs_none_of_the_likeliest(folder: Path, runner: Runner, tmp_path: Path) -> None:
    ranks = Ranks(settings(folder), 2, 1, tmp_path)
    try:
        sampling = SamplingParams(logprobs=0, prompt_logprobs=0)
        for one, other in zip(*(LocalEngine(r).generate(PROMPTS, 4, sampling) for r in (runner, ranks)), strict=True):
            same_scores(one.scores, other.scores, 0)
            if one.prompt_scores or other.prompt_scores:
                same_scores(one.prompt_scores, other.prompt_scores, 0)
    finally:
        ranks.close()


def check_split(alone: list[Answer], ranks: Ranks, **setup: int) -> None:
    try:
        answers = LocalEngine(ranks, stages=ranks.stages, **setup).generate(PROMPTS, TOKENS, MIXED)
        for one, other, sampling in zip(alone, answers, MIXED, strict=True):
            assert one.ids == other.ids
            same_scores(one.scores, other.scores, sampling.logprobs)
            same_scores(one.prompt_scores, other.prompt_scores, sampling.prompt_logprobs)
    finally:
        ranks.close()
