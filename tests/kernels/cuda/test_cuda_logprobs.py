"""The device reports of rows of logits what worker/runner/cpu/logprobs.py does; values equal a log_softmax's in
float64."""

import numpy as np
import pytest
import torch

from octavo.kernels.cuda.sampling.logprobs import Asked, logprobs, pack_asked, pack_prompt, result_words
from octavo.kernels.cuda.sampling.sample import OwnSamples
from octavo.worker.runner.cpu import logprobs as cpu
from octavo.worker.runner.cpu.sampler import Vocabulary

pytestmark = pytest.mark.gpu

UNTOUCHED = -77
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def on_device(logits: torch.Tensor, rows: list[int], ids: torch.Tensor, top: int) -> np.ndarray:
    """[rows, words], which were put in any order; checks that nothing beyond was touched. ids: of the tokens after
    `rows`."""
    pool = torch.randint(0, 1 << 30, (len(rows) + 2, 31), dtype=torch.int32)
    slots, positions = torch.randperm(len(rows) + 2)[: len(rows)], torch.randint(0, 31, (len(rows),))
    pool[slots, positions] = ids.int()
    places = torch.randperm(len(rows) + 1)[: len(rows)]
    asked = [Asked(*one) for one in zip(rows, slots.tolist(), positions.tolist(), places.tolist(), strict=True)]
    results = torch.full((len(rows) + 1, result_words(top)), UNTOUCHED, dtype=torch.int32, device="cuda")
    logprobs(logits, torch.from_numpy(pack_asked(asked)).cuda(), pool.cuda(), top, results)
    found = results.cpu()
    assert int((found == UNTOUCHED).all(dim=1).sum()) == 1
    return found[places].numpy()


def check(logits: torch.Tensor, top: int, rows: list[int] | None = None) -> None:
    """logits: on the device."""
    rows = list(range(logits.shape[0])) if rows is None else rows
    ids = torch.randint(0, logits.shape[1], (len(rows),))
    results = on_device(logits, rows, ids, top)
    given = logits[rows].float().cpu()
    found = cpu.logprobs(given, ids, top, Vocabulary(logits.shape[1]))
    exact = given.double().log_softmax(-1).clamp(min=cpu.FLOOR)
    assert results[:, 0].tolist() == found.finite.int().tolist()
    for row in range(len(rows)):
        words = np.frombuffer(found.pack(row, top), np.int32)
        values = results[row, 3 + top :].view(np.float32)
        assert np.isfinite(values).all()
        if found.finite[row]:
            assert results[row, 1 : 3 + top].tolist() == words[: 2 + top].tolist()
            np.testing.assert_allclose(values, exact[row].numpy()[words[1 : 2 + top]], atol=2e-5, rtol=1e-6)


@DTYPES
@pytest.mark.parametrize("vocabulary", [1, 5, 33, 2047, 4096, 4097, 8200, 49152, 128256])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_rows_are_reported_as_on_the_cpu(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(rows, vocabulary) * 3).to(dtype).cuda()
    for top in (0, 1, 5, 20):
        check(logits, min(top, vocabulary))


def test_the_largest_vocabulary_and_every_entry_of_a_small_one() -> None:
    check(torch.randn(2, (1 << 20) - 1).cuda(), 20)
    check(torch.randn(3, 17).cuda(), 17)
    check(torch.randn(2, 4999).cuda(), 4999)


@DTYPES
def test_rows_may_lie_apart_and_unaligned_and_be_asked_for_in_any_order(dtype: torch.dtype) -> None:
    whole = (torch.randn(9, 10_007) * 3).to(dtype).cuda()
    for part in (whole[:, :10_000], whole[:, 1:9_002], whole[::2, 3:]):
        check(part, 7, [3, 0, 3])


@pytest.mark.parametrize("top", [1, 20])
def test_equal_logits_are_in_the_order_of_their_ids(top: int) -> None:
    logits = torch.randn(6, 20_000).round()
    logits[1] = 0.0
    logits[2, ::2] = -0.0
    logits[2, 1::2] = 0.0
    logits[3] = float("-inf")
    logits[3, [19_999, 3, 4096]] = -1.5
    check(logits.cuda(), top)


def test_wide_rows_keep_their_sums() -> None:
    logits = torch.linspace(-3000, 3000, 12_000).repeat(3, 1)
    logits[1] -= 50_000
    logits[2] *= 1e-4
    check(logits.cuda(), 5)


def test_rows_that_are_not_finite_are_marked() -> None:
    logits = torch.randn(8, 9000)
    for row, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        logits[2 * row, 4097] = bad
    logits[6] = float("-inf")
    check(logits.cuda(), 5)


def test_positions_of_a_prompt_are_its_tokens_in_portions() -> None:
    rows = pack_prompt(slot=7, first=11, count=5, each=3).reshape(-1, 4)
    assert rows.tolist() == [[0, 7, 11, 0], [1, 7, 12, 1], [2, 7, 13, 2], [0, 7, 14, 3], [1, 7, 15, 4]]
    first, second = (pack_prompt(7, 11, 5, 3, OwnSamples(rank, 2)).reshape(-1, 4) for rank in range(2))
    assert first.tolist() == [[0, 7, 11, 0], [1, 7, 13, 2], [0, 7, 14, 3]]
    assert second.tolist() == [[0, 7, 12, 1], [0, 7, 15, 4]]


def test_what_does_not_fit_is_refused_by_name() -> None:
    tokens, asked = torch.zeros(2, 9, dtype=torch.int32).cuda(), torch.zeros(4, dtype=torch.int32).cuda()
    results = torch.zeros(1, result_words(5), dtype=torch.int32).cuda()
    with pytest.raises(ValueError, match="logits"):
        logprobs(torch.zeros(1, 4).cuda(), asked, tokens, 5, results)
    with pytest.raises(ValueError, match="results"):
        logprobs(torch.zeros(1, 40).cuda(), asked, tokens, 4, results)
