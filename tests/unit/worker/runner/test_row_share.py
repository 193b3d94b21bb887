"""Ranks get some rows whole, and all have what each has drawn of its own. This is the way of ranks whose GPUs do not
reach each other's memory; the other is a kernel's (tests/kernels/cuda/test_cuda_rows.py)."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.processes.threads import ThreadCollective, on_each

from octavo.kernels.cuda.step_layout.prepare import new_state
from octavo.worker.runner.cuda.row_share import SCORED_ROWS, AllRows, SwappedRows, row_box, row_share


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("samples", [1, 2, 7, 12])
def test_each_rank_has_its_rows_whole_and_what_all_have_drawn(samples: int, ranks: int) -> None:
    vocabulary, width = 50, -(-50 // ranks)
    logits = torch.randn(samples, vocabulary)
    padded = torch.nn.functional.pad(logits, (0, ranks * width - vocabulary), value=torch.nan)
    slots = torch.arange(samples, dtype=torch.int32).flip(0)
    step: Any = SimpleNamespace(sample_slots=slots, sample_ends=slots % 5)
    wanted = torch.stack((torch.arange(samples) + 100, torch.arange(samples) % 2)).int()

    def of_rank(collective: ThreadCollective) -> None:
        rows, rank = SwappedRows(collective, vocabulary), collective.rank
        columns = padded[:, rank * width : (rank + 1) * width]
        assert torch.equal(rows.own_rows(columns, step), logits[rank::ranks])
        assert torch.equal(rows.own_prompt_rows(columns), logits[rank::ranks])
        state, drawn = new_state(samples, 9, 1, 0, "cpu"), torch.full((2, samples), -1, dtype=torch.int32)
        drawn[:, rank::ranks] = wanted[:, rank::ranks]
        rows.share(drawn, step, state)
        assert torch.equal(drawn, wanted)
        assert torch.equal(state.tokens[slots.long(), (slots % 5).long()], wanted[0])

    on_each(ranks, of_rank)


def test_results_of_all_ranks_are_added_up_to_the_bit() -> None:
    """Words of any bits, each of one rank; two of them make a number that is summed."""
    results = torch.tensor([-1, 2**31 - 1, -(2**31), 0, 7, -9999], dtype=torch.int32)

    def of_rank(collective: ThreadCollective) -> torch.Tensor:
        mine = torch.where(torch.arange(6) % 3 == collective.rank, results, 0)
        SwappedRows(collective, 9).add_up(mine)
        return mine

    assert all(torch.equal(found, results) for found in on_each(3, of_rank))


def test_a_box_holds_the_rows_of_a_pass_and_of_a_prompt_each_aligned() -> None:
    box = row_box(max_requests=255, vocabulary=128_256, ranks=2, size=2)
    assert (box.rows, box.columns, box.stride) == (128 + SCORED_ROWS // 2, 64_128, 128_256)
    assert box.bytes == 160 * 128_256 * 2
    odd = row_box(max_requests=4, vocabulary=513, ranks=2, size=4)
    assert (odd.rows, odd.columns, odd.stride) == (2 + 32, 257, 516), "rows of 514 numbers, 16 bytes at a time"


def test_a_rank_alone_has_all_rows() -> None:
    def of_rank(collective: ThreadCollective) -> bool:
        return isinstance(row_share(collective, row_box(4, 9, 1, 4), 9, torch.float32), AllRows)

    assert on_each(1, of_rank) == [True]
