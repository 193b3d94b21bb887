"""The device changes rows of logits as worker/runner/cpu/logits_processors.py and masks.py do, whatever their type and
alignment."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch

from octavo.kernels.cuda.sampling.adjust import (
    NO_MASK,
    LogitsChanges,
    Row,
    adjust,
    new_rows,
    pack_changes_of_logits,
    pack_rows,
)
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Masks
from octavo.worker.runner.cpu.logits_processors import UNLIKELY, AdjustedRow, Columns, adjust_
from octavo.worker.runner.cpu.logits_processors import RowChanges as OnCpu
from octavo.worker.runner.cpu.masks import bind

pytestmark = pytest.mark.gpu

CONTEXT = 700
UNTOUCHED = 12345.0
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


@dataclass
class Case:
    """rows: of the logits that are changed, each with its request's sampling; masks: [m, words] of `masked`."""

    logits: torch.Tensor
    rows: list[int]
    sampling: list[SamplingParams | None]
    prompts: list[list[int]]
    generated: list[list[int]]
    masked: list[int] = field(default_factory=list)
    masks: torch.Tensor | None = None


def on_device(case: Case) -> torch.Tensor:
    """What becomes of the rows; checks that nothing else was touched."""
    count, vocabulary = len(case.rows), case.logits.shape[1]
    pool = torch.randint(0, 1 << 30, (count + 2, CONTEXT), dtype=torch.int32)
    slots = random.sample(range(count + 2), count)
    packed, held = [], []
    for index, (row, slot, sampling) in enumerate(zip(case.rows, slots, case.sampling, strict=True)):
        tokens = case.prompts[index] + case.generated[index]
        pool[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        if sampling is not None:
            words = pack_changes_of_logits(changes(sampling, len(case.prompts[index])), vocabulary)
            held.append(torch.from_numpy(words).cuda())
        mask = case.masked.index(index) if index in case.masked else NO_MASK
        packed.append(Row(row, slot, len(tokens), mask, 0 if sampling is None else held[-1].data_ptr()))
    before = case.logits.clone()
    whole = torch.full((count + 1, new_rows(1, vocabulary, "cpu").stride(0)), UNTOUCHED, device="cuda")
    rows = torch.from_numpy(pack_rows(packed)).cuda()
    masks = None if case.masks is None else case.masks.cuda()
    tokens = pool.cuda()
    adjust(case.logits, rows, tokens, masks, whole[:count, :vocabulary])
    assert torch.equal(case.logits, before) or before.isnan().any()
    assert (whole[count:] == UNTOUCHED).all() and (whole[:, vocabulary:] == UNTOUCHED).all()
    return whole[:count, :vocabulary].cpu()


def changes(sampling: SamplingParams, prompt: int) -> LogitsChanges:
    return LogitsChanges(
        prompt, sampling.min_tokens, sampling.forbidden, sampling.logit_bias, sampling.bad_words,
        sampling.allowed_token_ids, sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty,
    )  # fmt: skip


def on_cpu(case: Case) -> torch.Tensor:
    logits = case.logits[case.rows].float().cpu()
    if case.masks is not None:
        bind(logits, case.masked, Masks(1, case.masks.numpy().tobytes()), 0)
    adjusted = [
        AdjustedRow(
            row,
            OnCpu(sampling, Columns(0, logits.shape[1])),
            torch.tensor(case.prompts[row] + case.generated[row], dtype=torch.int64),
            len(case.generated[row]),
        )
        for row, sampling in enumerate(case.sampling)
        if sampling is not None
    ]
    adjust_(logits, adjusted)
    return logits


def check(case: Case) -> None:
    torch.testing.assert_close(on_device(case), on_cpu(case), rtol=1e-6, atol=0, equal_nan=True)


def random_case(draw: random.Random, logits: torch.Tensor, rows: Sequence[int]) -> Case:
    vocabulary, masked = logits.shape[1], [index for index in range(len(rows)) if draw.random() < 0.4]
    case = Case(logits, list(rows), [], [], [], masked)
    ids = [draw.randrange(vocabulary) for _ in range(20)] + [vocabulary - 1]
    for index in range(len(rows)):
        case.prompts.append(draw.choices(ids, k=draw.choice((1, 2, 255, 256, 300))))
        case.generated.append(draw.choices(ids, k=draw.choice((0, 1, 2, 17, 300))))
        case.sampling.append(
            None if index in masked and draw.random() < 0.3 else some_sampling(draw, vocabulary, case, ids)
        )
    if masked:
        case.masks = torch.randint(-(2**31), 2**31, (len(masked), -(-vocabulary // 32)), dtype=torch.int32)
    return case


def some_sampling(draw: random.Random, vocabulary: int, case: Case, ids: list[int]) -> SamplingParams:
    """Of the request whose tokens came last. Bad words: some that its text leads to, and some that it does not."""
    generated = case.generated[-1]

    def some(most: int) -> tuple[int, ...]:
        known = draw.sample(ids, min(len(ids), 5))
        return tuple({*known, *(draw.randrange(vocabulary) for _ in range(draw.randint(0, most)))})

    words = [(draw.choice(ids),)] + [
        (*generated[len(generated) - before :], draw.choice(ids)) for before in (1, 2, 5) if before <= len(generated)
    ]
    words += [(case.prompts[-1][-1], *generated[-3:], draw.choice(ids)), tuple(draw.choices(ids, k=3))]
    return SamplingParams(
        presence_penalty=draw.choice((0.0, 0.7, -1.2)),
        frequency_penalty=draw.choice((0.0, 0.3)),
        repetition_penalty=draw.choice((1.0, 1.3, 0.6)),
        logit_bias=tuple((token, draw.uniform(-100, 100)) for token in some(300)) if draw.random() < 0.6 else (),
        allowed_token_ids=some(vocabulary // 2) if draw.random() < 0.3 else (),
        bad_words=tuple(words) if draw.random() < 0.6 else (),
        min_tokens=draw.choice((0, 2, 17, 400)),
        forbidden=some(300) if draw.random() < 0.6 else (),
    )


@DTYPES
@pytest.mark.parametrize("vocabulary", [1, 5, 33, 2047, 4096, 4097, 8200, 49152, 128256])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_rows_are_changed_as_on_the_cpu(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    draw = random.Random(rows * vocabulary)
    logits = (torch.randn(rows + 4, vocabulary) * 3).to(dtype).cuda()
    for _ in range(3):
        check(random_case(draw, logits, draw.sample(range(rows + 4), rows)))


@DTYPES
def test_rows_may_lie_apart_and_unaligned(dtype: torch.dtype) -> None:
    draw = random.Random(1)
    whole = (torch.randn(9, 10_007) * 3).to(dtype).cuda()
    for part in (whole[:, :10_000], whole[:, 1:9_002], whole[::2, 3:]):
        check(random_case(draw, part, range(part.shape[0])))


def test_each_field_alone() -> None:
    logits = torch.randn(1, 5000).cuda() * 3
    prompt, generated = [3, 4, 4, 4999], [4, 4, 7, 4096]
    for one in (
        SamplingParams(presence_penalty=0.5),
        SamplingParams(frequency_penalty=-0.5),
        SamplingParams(repetition_penalty=1.7),
        SamplingParams(logit_bias=((4095, 1.5), (4096, -100.0))),
        SamplingParams(allowed_token_ids=(0, 4999)),
        SamplingParams(bad_words=((7, 4096, 11), (8, 4096, 12), (13,), (4999, 4, 4, 7, 4096, 14))),
        SamplingParams(min_tokens=5, forbidden=(0, 4999)),
        SamplingParams(min_tokens=4, forbidden=(0, 4999)),
    ):
        check(Case(logits, [0], [one], [prompt], [generated]))


def test_a_bad_word_that_begins_in_the_prompt_is_none() -> None:
    logits = torch.zeros(1, 40).cuda()
    case = Case(logits, [0], [SamplingParams(bad_words=((1, 2, 3), (2, 4)))], [[9, 1]], [[2]])
    assert on_device(case)[0, [3, 4]].tolist() == [0.0, pytest.approx(UNLIKELY)]


def test_ids_beyond_the_end_of_a_mask_are_forbidden() -> None:
    case = Case(torch.randn(2, 6000).cuda(), [1], [None], [[1]], [[]], [0], torch.full((1, 130), -1, dtype=torch.int32))
    check(case)
    assert on_device(case).isfinite().nonzero()[:, 1].max() == 130 * 32 - 1


def test_what_is_not_a_number_stays_so_unless_it_is_forbidden() -> None:
    logits = torch.randn(1, 4100).cuda()
    logits[0, [5, 6, 4099]] = torch.tensor([float("nan"), float("inf"), float("-inf")]).cuda()
    every = SamplingParams(
        repetition_penalty=1.5, presence_penalty=1.0, logit_bias=((5, 1.0),), bad_words=((5,), (6,), (4099,))
    )
    check(Case(logits, [0], [every], [[5, 6]], [[4099, 5]]))
    check(Case(logits, [0], [SamplingParams(allowed_token_ids=(6, 7))], [[5]], [[]]))


def test_a_long_context_is_counted_in_full() -> None:
    draw, vocabulary, length = random.Random(2), 9000, 600
    prompt, generated = draw.choices(range(vocabulary), k=length), draw.choices(range(4090, 4100), k=90)
    sampling = SamplingParams(presence_penalty=0.25, frequency_penalty=0.125, repetition_penalty=1.25)
    check(Case(torch.randn(1, vocabulary).cuda(), [0], [sampling], [prompt], [generated]))


def test_no_rows_are_no_work() -> None:
    out = new_rows(0, 100, "cuda")
    empty = torch.empty(0, dtype=torch.int32, device="cuda")
    adjust(torch.zeros(3, 100).cuda(), empty, torch.zeros(2, 9, dtype=torch.int32).cuda(), None, out)


def test_what_does_not_fit_is_refused_by_name() -> None:
    tokens, rows = torch.zeros(2, 9, dtype=torch.int32).cuda(), torch.zeros(8, dtype=torch.int32).cuda()
    logits = torch.zeros(3, 100).cuda()
    with pytest.raises(ValueError, match="logits"):
        adjust(logits, rows, tokens, None, new_rows(1, 99, "cuda"))
    with pytest.raises(ValueError, match="rows"):
        adjust(logits, rows[:7], tokens, None, new_rows(1, 100, "cuda"))
