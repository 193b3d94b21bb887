"""The device draws what worker/runner/cpu/sampler.py draws from the same logits.

Noise and filters are the same functions, but exp and log round differently in the last place. An entry's score is off
by 1e-6 or so, and the drawn id differs only where two scores are that close: about once in a million draws.
"""

import pytest
import torch

from octavo.kernels.cuda.sampling.sample import OwnSamples, sample
from octavo.kernels.cuda.step_layout.prepare import DeviceState, StepBuffers, new_state, step_buffers
from octavo.worker.distributed.collective import ALONE
from octavo.worker.runner.cpu import sampler
from octavo.worker.runner.cpu.filters import keep_likeliest
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, gumbel

pytestmark = pytest.mark.gpu

UNTOUCHED = -5
VOCABULARIES = pytest.mark.parametrize("vocabulary", [1, 5, 2047, 8192, 8193, 49152, 128256])


def draws(rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float | None = None) -> Draw:
    return Draw(
        torch.full((rows,), temperature),
        torch.full((rows,), top_k),
        torch.full((rows,), top_p),
        torch.randint(-(2**63), 2**63 - 1, (rows,)),
        torch.randint(0, 5000, (rows,)),
        None if min_p is None else torch.full((rows,), min_p),
    )


def mixed_draws(rows: int) -> Draw:
    """Greedy, plain and filtered rows side by side."""
    draw = draws(rows)
    for row in range(rows):
        draw.temperature[row] = (0.0, 1.0, 0.7, 1e-4, 5.0)[row % 5]
        draw.top_k[row] = (0, 0, 40, 0, 1, 3000, 10**6)[row % 7]
        draw.top_p[row] = (1.0, 0.9, 1.0, 0.3, 0.999, 1.0, 0.0)[row % 11 % 7]
    return draw


def step_of(draw: Draw, room: int) -> tuple[StepBuffers, DeviceState]:
    """Samples in slots of a shuffled order, then `room` of padding."""
    rows = len(draw.seeds)
    state, step = new_state(rows + 3, 64, 4, 0, "cuda"), step_buffers(1, rows + room, 1, "cuda")
    slots = torch.randperm(rows + 3)[:rows]
    state.tokens.fill_(UNTOUCHED)
    for name in ("temperature", "top_k", "top_p", "seeds"):
        target = getattr(state, name)
        target[slots.cuda()] = getattr(draw, name).to(target)
    if draw.min_p is not None:
        state.min_p[slots.cuda()] = draw.min_p.cuda()
    step.header[3] = rows
    step.sample_slots.fill_(state.pad_slot)
    step.sample_slots[:rows] = slots.int()
    step.sample_ends[:rows] = torch.randint(0, 65, (rows,))
    step.counters[:rows] = draw.counters.int()
    return step, state


def on_device(logits: torch.Tensor, draw: Draw, room: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, failed) of the rows of `draw`; checks where else ids went, and that nothing else was touched.

    `room` samples more are padding, of logits that are not numbers.
    """
    rows = len(draw.seeds)
    step, state = step_of(draw, room)
    if room:
        logits = torch.cat((logits, logits.new_full((room, logits.shape[1]), float("nan"))))
    memory = torch.full((2 * (rows + room) + 1,), UNTOUCHED, dtype=torch.int32, device="cuda")
    ids, failed = sample(logits, step, state, memory[:-1].view(2, -1))
    assert (ids[rows:] == UNTOUCHED).all() and (failed[rows:] == UNTOUCHED).all() and memory[-1] == UNTOUCHED
    slots, ends = step.sample_slots[:rows].long(), step.sample_ends[:rows].long()
    assert torch.equal(state.tokens[slots, ends], ids[:rows])
    assert int((state.tokens != UNTOUCHED).sum()) == rows
    return ids[:rows].cpu().long(), failed[:rows].cpu().bool()


def expect(logits: torch.Tensor, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    return sampler.sample(logits, draw, Vocabulary(logits.shape[1]))


def scores(logits: torch.Tensor, draw: Draw) -> torch.Tensor:
    """What worker/runner/cpu/sampler.py takes the argmax of, for rows that are not greedy."""
    scaled = (logits.float() - logits.float().max(-1, keepdim=True).values) / draw.temperature[:, None]
    if draw.min_p is not None:
        scaled[scaled < draw.min_p.log()[:, None]] = float("-inf")
    scaled[~keep_likeliest(scaled, draw.top_k, draw.top_p, ALONE)] = float("-inf")
    return scaled + gumbel(draw.seeds, draw.counters, logits.shape[1])


def check(logits: torch.Tensor, draw: Draw, room: int = 0) -> None:
    ids, failed = on_device(logits.cuda(), draw, room)
    expected, finite = expect(logits.float(), draw)
    assert torch.equal(failed, ~finite)
    differ = (ids != expected).nonzero().squeeze(1)
    assert len(differ) <= max(1, len(ids) // 100_000), (differ, ids[differ], expected[differ])
    for row in differ.tolist():  # too close to call, and not more than that
        of = scores(logits[row : row + 1], draw.of(torch.tensor([row])))[0]
        assert of[expected[row]] - of[ids[row]] < 1e-5


def normal(rows: int, vocabulary: int, dtype: torch.dtype = torch.float32, scale: float = 2.0) -> torch.Tensor:
    return (torch.randn(rows, vocabulary) * scale).to(dtype)


@VOCABULARIES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 17, 150])
def test_rows_of_all_kinds_draw_as_on_the_cpu(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    rows = min(rows, 1_500_000 // vocabulary)
    check(normal(rows, vocabulary, dtype), mixed_draws(rows), room=rows // 2)


@pytest.mark.parametrize("temperature", [1e-6, 0.01, 0.7, 1.0, 100.0])
def test_many_seeds_draw_the_same_token(temperature: float) -> None:
    check(normal(1, 1000).expand(20_000, 1000).contiguous(), draws(20_000, temperature))


@pytest.mark.parametrize("top_p", [1.0, 0.0, 1e-4, 0.5, 0.9, 0.999, 1 - 2**-24])
@pytest.mark.parametrize("top_k", [0, 1, 2, 50, 2100, 4999, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_filters_keep_the_same_entries(top_k: int, top_p: float, dtype: torch.dtype) -> None:
    check(normal(300, 5000, dtype), draws(300, 0.8, top_k, top_p))


@pytest.mark.parametrize("top_k", [0, 7, 3000, 70_000])
@pytest.mark.parametrize("top_p", [1.0, 0.01, 0.6])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.1, 30.0])
def test_ties_and_narrow_and_wide_rows_keep_the_lowest_indices(scale: float, top_p: float, top_k: int) -> None:
    """Equal logits, and rows whose logits fill few of the buckets, or nearly none."""
    logits = normal(6, 100_000, torch.bfloat16, scale)
    check(logits, draws(6, 1.0, top_k, top_p))
    check(logits[:, :100_000].float().round(decimals=3), draws(6, 1.0, top_k, top_p))


@pytest.mark.parametrize("rows", [1, 20, 40, 70, 200])
def test_filters_do_not_depend_on_how_many_rows_there_are(rows: int) -> None:
    """Few rows are drawn by several CTAs each."""
    check(normal(rows, 20_011), draws(rows, 0.7, 0, 0.9))
    check(normal(rows, 20_011), draws(rows, 3.0, 9000, 0.9))


@pytest.mark.parametrize("min_p", [1e-20, 1e-5, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("top_k", [0, 30, 2500])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
@pytest.mark.parametrize("scale", [0.01, 2.0])
def test_min_p_removes_what_is_unlikely_beside_the_best(min_p: float, top_k: int, top_p: float, scale: float) -> None:
    """Before the other filters: top_p is a share of what it keeps."""
    check(normal(500, 3000, scale=scale), draws(500, 1.3, top_k, top_p, min_p))
    check(normal(5, 50_000, torch.bfloat16, scale), draws(5, 0.7, top_k, top_p, min_p))


def test_top_p_is_a_share_of_what_min_p_keeps() -> None:
    logits = torch.tensor([0.4, 0.3, 0.3 / 1000]).log().repeat_interleave(torch.tensor([1, 1, 1000]))
    for rows in (1000, 1):
        wide = logits.expand(rows, -1).contiguous()
        ids, _ = on_device(wide.cuda(), draws(rows, 1.0, 0, 0.55, 0.5))
        assert set(ids.tolist()) <= {0}, "0.4 of 0.7 is more than 0.55; of everything it would be less"


def test_a_row_that_is_not_finite_fails_alone() -> None:
    logits = normal(40, 30_000)
    for row, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        for at in range(4):
            logits[10 * row + at, at * 7501] = bad
    logits[33] = float("-inf")
    logits[34, 1:] = float("-inf")
    logits[35] = float("nan")
    for draw in (draws(40, 0.0), draws(40), draws(40, 1.0, 20), draws(40, 1.0, 0, 0.7)):
        ids, failed = on_device(logits.cuda(), draw)
        expected, finite = expect(logits, draw)
        assert failed.nonzero().squeeze(1).tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 33, 35]
        assert torch.equal(failed, ~finite)
        assert torch.equal(ids[finite], expected[finite])
        assert ((ids >= 0) & (ids < 30_000)).all()


def test_the_greatest_of_equals_is_the_first() -> None:
    logits = torch.zeros(3, 128_256)
    logits[1, [70_000, 5, 128_255]] = 1.0
    logits[2, [128_255, 128_254]] = 1.0
    assert on_device(logits.cuda(), draws(3, 0.0))[0].tolist() == [0, 5, 128_254]


def test_rows_may_lie_apart_and_unaligned() -> None:
    whole = normal(9, 10_007, torch.bfloat16).cuda()
    for part in (whole[:, :10_000], whole[:, 1:9_002], whole[::2, 3:]):
        draw = mixed_draws(part.shape[0])
        expected, _ = expect(part.cpu().float(), draw)
        assert torch.equal(on_device(part, draw)[0], expected)


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.linspace(-2, 1, 16)
    draw = draws(50_000)
    ids, _ = on_device(logits.expand(50_000, 16).cuda(), draw)
    wanted = logits.softmax(0) * 50_000
    assert ((ids.bincount(minlength=16) - wanted).square() / wanted).sum() < 44  # chi-squared, 15 degrees: 1 in 10,000


def test_a_graph_draws_again_with_new_counters() -> None:
    logits, draw = normal(8, 50_000).cuda(), draws(8, 1.0, 0, 0.9)
    step, state = step_of(draw, 0)
    sample(logits, step, state)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids, _ = sample(logits, step, state)
    for _ in range(3):
        draw.counters.add_(1)
        step.counters.copy_(draw.counters)
        graph.replay()
        assert torch.equal(ids.cpu().long(), expect(logits.cpu(), draw)[0])


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(("samples", "real"), [(1, 1), (7, 5), (64, 64)])
def test_parts_of_the_samples_are_drawn_apart(samples: int, real: int, size: int) -> None:
    """By as many ranks, each of rows that are its own; and again, of rows that are named."""
    logits, draw = normal(samples, 20_011, torch.bfloat16).cuda(), mixed_draws(samples)
    step, state = step_of(draw, 0)
    step.header[3] = real
    wanted = sample(logits, step, state, torch.full((2, samples), UNTOUCHED, dtype=torch.int32, device="cuda"))
    tokens = state.tokens.clone()
    for named in (False, True):
        found = torch.full_like(wanted, UNTOUCHED)
        state.tokens.fill_(UNTOUCHED)
        for own in (OwnSamples(rank, size) for rank in range(size)):
            chosen = torch.arange(samples, dtype=torch.int32, device="cuda")[own.rank :: size].flip(0)
            rows = logits[chosen.long()] if named else logits[own.rank :: size]
            sample(rows, step, state, found, own, chosen if named else None)
        assert torch.equal(found, wanted) and torch.equal(state.tokens, tokens)


def test_logits_of_other_rows_than_the_ranks_are_refused() -> None:
    step, state = step_of(draws(5), 0)
    with pytest.raises(ValueError, match=r"2 rows; 3 of 5 samples are rank 0's"):
        sample(normal(2, 50).cuda(), step, state, own=OwnSamples(0, 2))
