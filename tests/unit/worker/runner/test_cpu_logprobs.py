"""Log-probabilities on the CPU equal a log_softmax's, on any number of ranks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.processes.threads import on_each

from octavo.worker.distributed.collective import ALONE, Gathering
from octavo.worker.runner.cpu.logprobs import FLOOR, logprobs
from octavo.worker.runner.cpu.sampler import Vocabulary


@given(st.data(), st.sampled_from((1, 2, 4)), st.integers(0, 5))
def test_log_probabilities_equal_log_softmax_on_every_rank(data: st.DataObject, ranks: int, top: int) -> None:
    value = st.sampled_from((0.0, -0.0, 1.5, -2.0, 30.0, -90.0, -math.inf))
    rows = data.draw(st.lists(st.lists(value, min_size=8, max_size=8), min_size=1, max_size=3))
    logits = torch.tensor(rows)
    logits[:, 3] = 0.25  # at least one token is possible
    ids = torch.tensor([data.draw(st.integers(0, 7)) for _ in rows])

    def work(collective: Gathering) -> list[bytes]:
        width = 8 // ranks
        part = logits[:, collective.rank * width : (collective.rank + 1) * width].clone()
        found = logprobs(part, ids, top, Vocabulary(8, collective.rank * width, collective))
        assert found.finite.all()
        return [found.pack(row, top) for row in range(len(rows))]

    expected = logits.double().log_softmax(-1).clamp(min=FLOOR)
    for packed in on_each(ranks, work):
        for row, one in enumerate(packed):
            words = torch.frombuffer(bytearray(one), dtype=torch.int32)
            values = torch.frombuffer(bytearray(one), dtype=torch.float32)[2 + top :]
            order = sorted(range(8), key=lambda index: (-float(logits[row, index]), index))[:top]
            assert words[1 : 2 + top].tolist() == [int(ids[row]), *order]
            torch.testing.assert_close(values.double(), expected[row, [int(ids[row]), *order]], atol=1e-5, rtol=1e-6)
            assert int(words[0]) == 1 + int((logits[row] > logits[row, ids[row]]).sum())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_are_reported_and_have_finite_numbers(bad: float) -> None:
    logits = torch.zeros(2, 6)
    logits[1, 4] = bad
    found = logprobs(logits, torch.tensor([4, 4]), 2, Vocabulary(6, 0, ALONE))
    assert found.finite.tolist() == [True, False]
    numbers = torch.frombuffer(bytearray(found.pack(1, 2)), dtype=torch.float32)[4:]
    assert torch.isfinite(numbers).all()
