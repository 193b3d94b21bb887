"""Ranks that share a vocabulary draw what one rank draws; here they are all on one GPU."""

import pytest
import torch

from octavo.kernels.cuda.sampling.sample import sample, sample_parts
from octavo.kernels.cuda.sampling.sample_split import join_samples
from octavo.kernels.cuda.step_layout.prepare import new_state, step_buffers

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("vocabulary", [5, 513, 49152, 128256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_joined_parts_are_the_samples_of_the_whole(ranks: int, vocabulary: int, dtype: torch.dtype, rows: int) -> None:
    generator = torch.Generator("cuda").manual_seed(rows)
    logits = torch.randn((rows, vocabulary), generator=generator, device="cuda").mul_(3).to(dtype)
    logits[0, -1] = float("nan") if rows > 1 else logits[0, -1]
    columns = -(-vocabulary // ranks)
    padded = torch.nn.functional.pad(logits, (0, columns * ranks - vocabulary), value=float("-inf"))
    state = new_state(rows, 16, 1, 0, "cuda")
    state.temperature[:rows] = (torch.arange(rows, device="cuda") % 4) / 2
    state.seeds[:rows] = torch.arange(rows, device="cuda") * 7919
    step = step_buffers(rows, rows, rows, "cuda")
    step.header[3] = rows
    step.sample_slots[:] = torch.arange(rows)
    step.sample_ends[:] = 3
    step.counters[:] = torch.arange(rows) % 5

    ids, failed = sample(logits, step, state)
    wanted = state.tokens.clone()
    state.tokens.zero_()
    parts = [sample_parts(part, step, state, rank * columns) for rank, part in enumerate(padded.split(columns, dim=1))]
    found, fell = join_samples(torch.stack(parts), columns, step, state)

    assert failed.tolist() == fell.tolist() and int(failed.sum()) == (rows > 1)
    good = failed == 0
    assert torch.equal(found[good], ids[good]) and int(found.max()) < vocabulary
    assert torch.equal(state.tokens[:-1][good], wanted[:-1][good])
