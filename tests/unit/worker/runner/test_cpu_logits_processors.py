"""What few requests change in their logits: as a plain loop over ids has it, on any number of ranks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.processes.threads import on_each

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.distributed.collective import Gathering
from octavo.worker.runner.cpu.logits_processors import UNLIKELY, AdjustedRow, Columns, RowChanges, adjust_
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, sample

SIZE = 12
token = st.integers(0, SIZE - 1)
tokens = st.lists(token, max_size=8).map(tuple)
penalty = st.sampled_from((0.0, 0.5, -1.0, 2.0))


def plainly(logits: list[float], how: SamplingParams, prompt: list[int], generated: list[int]) -> list[float]:
    """The definition, an id at a time."""
    changed = []
    for index, value in enumerate(logits):
        if how.allowed_token_ids and index not in how.allowed_token_ids:
            value = -math.inf
        if len(generated) < how.min_tokens and index in how.forbidden:
            value = -math.inf
        for word in how.bad_words:
            before = list(word[:-1])
            if word[-1] == index and (not before or generated[-len(before) :] == before):
                value = min(value, UNLIKELY)
        value += dict(how.logit_bias).get(index, 0.0)
        if index in prompt or index in generated:
            value = value / how.repetition_penalty if value > 0 else value * how.repetition_penalty
        if index in generated:
            value -= how.presence_penalty + how.frequency_penalty * generated.count(index)
        changed.append(value)
    return changed


@given(
    how=st.builds(
        SamplingParams,
        presence_penalty=penalty,
        frequency_penalty=penalty,
        repetition_penalty=st.sampled_from((1.0, 0.5, 1.3, 2.0)),
        logit_bias=st.dictionaries(token, st.sampled_from((-100.0, 0.5, 100.0)), max_size=4).map(
            lambda d: tuple(d.items())
        ),
        allowed_token_ids=st.sets(token).map(tuple),
        bad_words=st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
        min_tokens=st.integers(0, 3),
        forbidden=tokens,
    ),
    prompt=tokens.map(list),
    generated=tokens.map(list),
    ranks=st.sampled_from((1, 3)),
)
def test_a_row_is_changed_as_its_definition_says(
    how: SamplingParams, prompt: list, generated: list, ranks: int
) -> None:
    logits = torch.randn(2, SIZE, generator=torch.Generator().manual_seed(len(prompt))) * 3
    whole = logits.clone()
    width = SIZE // ranks
    tokens = torch.tensor(prompt + generated, dtype=torch.int64)
    for rank in range(ranks):
        part = whole[:, rank * width : (rank + 1) * width].clone()
        adjust_(part, [AdjustedRow(1, RowChanges(how, Columns(rank * width, width)), tokens, len(generated))])
        whole[:, rank * width : (rank + 1) * width] = part
    expected = torch.tensor([logits[0].tolist(), plainly(logits[1].tolist(), how, prompt, generated)])
    torch.testing.assert_close(whole, expected)


def test_a_bad_word_is_drawn_only_when_nothing_else_is_allowed() -> None:
    logits = torch.tensor([[1.0, 5.0, 2.0], [1.0, 5.0, 2.0]])
    rows = [
        AdjustedRow(row, RowChanges(how, Columns(0, 3)), torch.tensor([0]), 0)
        for row, how in enumerate(
            (SamplingParams(bad_words=((1,),)), SamplingParams(bad_words=((1,),), allowed_token_ids=(1,)))
        )
    ]
    adjust_(logits, rows)
    for temperature in (0.0, 1e-9, 2.0):
        ids, finite = sample(logits, draw(2, temperature), Vocabulary(3))
        assert finite.all() and ids[0] != 1 and ids[1] == 1


def draw(rows: int, temperature: float, min_p: float | None = None) -> Draw:
    zero = torch.zeros(rows, dtype=torch.int64)
    return Draw(
        temperature=torch.full((rows,), temperature),
        top_k=zero,
        top_p=torch.ones(rows),
        seeds=zero,
        counters=torch.arange(rows),
        min_p=None if min_p is None else torch.full((rows,), min_p),
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_min_p_keeps_what_has_that_share_of_the_likeliest_after_temperature(ranks: int) -> None:
    chances = torch.tensor([0.5, 0.26, 0.24, 0.0])
    logits = chances.log().expand(800, -1)

    def work(collective: Gathering) -> torch.Tensor:
        width = 4 // ranks
        part = logits[:, collective.rank * width : (collective.rank + 1) * width]
        return sample(part, draw(800, 1.0, 0.5), Vocabulary(4, collective.rank * width, collective))[0]

    for ids in on_each(ranks, work):
        assert set(ids.tolist()) == {0, 1}
    hotter, _ = sample(logits, draw(800, 2.0, 0.5), Vocabulary(4))
    assert set(hotter.tolist()) == {0, 1, 2}, "0.24 is half of 0.5 by then"
    assert set(sample(logits, draw(800, 1.0, 1.0), Vocabulary(4))[0].tolist()) == {0}


def test_min_p_keeps_what_stands_just_at_its_bound() -> None:
    """The likeliest is at the bound of min_p 1: without it nothing would be left, and the first id would be drawn."""
    half = torch.tensor(0.5).log().item()
    logits = torch.tensor([-9.0, half, 0.0, half - 1e-6]).expand(800, -1)
    assert set(sample(logits, draw(800, 1.0, 1.0), Vocabulary(4))[0].tolist()) == {2}
    assert set(sample(logits, draw(800, 1.0, 0.5), Vocabulary(4))[0].tolist()) == {1, 2}
