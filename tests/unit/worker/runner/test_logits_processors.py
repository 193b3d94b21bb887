"""What the host packs and reads for sampling fields is what the CPU gives; the kernels are in PyTorch here."""

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.models.scores import same_scores
from support.processes.threads import ThreadCollective, on_each
from support.worker import portable_device

from octavo.kernels.cuda.sampling.adjust import LogitsChanges
from octavo.kernels.cuda.step_layout.prepare import DeviceState, new_state
from octavo.shared.sampling_params import LOGITS_FIELDS, SamplingParams
from octavo.worker.messages.request import FEATURES
from octavo.worker.messages.step import Admit, Forward, Masks, Sample, Scored, Step, StepResult
from octavo.worker.runner.cpu.logits_processors import LogitsProcessors as OnCpu
from octavo.worker.runner.cpu.logprobs import Logprobs
from octavo.worker.runner.cpu.masks import bind
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary
from octavo.worker.runner.cpu.sampler import sample as sample_on_cpu
from octavo.worker.runner.cuda import head, logits_processors
from octavo.worker.runner.cuda.row_share import SCORED_ROWS, AllRows, RowShare, SwappedRows

SIZE, SLOTS, CONTEXT, HIDDEN = 70, 9, 400, 8
HEAD = torch.randn(HIDDEN, SIZE, generator=torch.Generator().manual_seed(1)) * 3


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("adjust", "sample", "logprobs", "upload_words", "download_words"):
        monkeypatch.setattr(logits_processors, name, getattr(portable_device, name))
    monkeypatch.setattr(head, "sample", portable_device.sample)


def logits_of(hidden: torch.Tensor) -> torch.Tensor:
    return hidden @ HEAD


@dataclass
class Pair:
    """The same requests, kept for the CPU and for the device."""

    cpu: OnCpu
    cpu_logprobs: Logprobs
    tokens: torch.Tensor  # the CPU's pool
    gpu: logits_processors.CudaLogitsProcessors
    state: DeviceState
    admits: list[Admit] = field(default_factory=list)
    head: torch.Tensor = field(default_factory=lambda: HEAD)
    pads: int = 0  # of its columns
    rows: RowShare = field(default_factory=AllRows)

    def logits_of(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = hidden @ self.head
        if self.pads:
            logits[:, -self.pads :] = float("-inf")
        return logits

    def admit(self, admit: Admit) -> None:
        self.admits.append(admit)
        self.tokens[admit.slot, : len(admit.tokens)] = torch.tensor(admit.tokens)
        self.state.tokens[admit.slot, : len(admit.tokens)] = torch.tensor(admit.tokens, dtype=torch.int32)
        how = admit.sampling
        values = (how.temperature, how.top_k, how.top_p, how.min_p, how.seed)
        for name, value in zip(("temperature", "top_k", "top_p", "min_p", "seeds"), values, strict=True):
            getattr(self.state, name)[admit.slot] = value
        self.cpu.admit(admit)
        self.cpu_logprobs.admit(admit)
        self.gpu.admit(admit)

    def draw(self, slots: list[int], counters: tuple[int, ...]) -> Draw:
        state = self.state
        of = [getattr(state, name)[slots] for name in ("temperature", "top_k", "top_p", "seeds")]
        return Draw(of[0], of[1].long(), of[2], of[3], torch.tensor(counters), state.min_p[slots])

    def on_cpu(self, step: Step, hidden: torch.Tensor, masks: Masks) -> StepResult:
        """As worker/runner/cpu/runner.py has it."""
        forward, wanted = step.forward, step.sample
        begins = torch.tensor(forward.counts).cumsum(0).tolist()
        lasts = [begins[row] - 1 for row in wanted.rows]
        parts = [begins[row] - forward.counts[row] + first for row, first, _ in wanted.scored]
        kept = [at + index for at, (_, _, count) in zip(parts, wanted.scored, strict=True) for index in range(count)]
        rows_then_scored = torch.cat((hidden[[begin - 1 for begin in begins]], hidden[kept]))
        prompts = self.cpu_logprobs.prompts(step, rows_then_scored, logits_of)
        slots = [forward.slots[row] for row in wanted.rows]
        ends = [forward.starts[row] + forward.counts[row] for row in wanted.rows]
        logits = logits_of(hidden[lasts])
        raw = self.cpu_logprobs.raw(logits, slots)
        if wanted.masked:
            bind(logits, wanted.masked, masks, 0)
        self.cpu.adjust(logits, slots, ends)
        ids, finite = sample_on_cpu(logits, self.draw(slots, wanted.counters), Vocabulary(SIZE))
        self.tokens[slots, ends] = ids
        failed = tuple((~finite).nonzero()[:, 0].tolist())
        scores = self.cpu_logprobs.scores(raw, slots, ids)
        return StepResult(step.number, tuple(ids.tolist()), failed, scores, prompts)

    def on_gpu(self, step: Step, hidden: torch.Tensor, masks: Masks) -> StepResult:
        """As worker/runner/cuda/runner.py has it; the pass draws for all rows."""
        forward, wanted = step.forward, step.sample
        begins = torch.tensor(forward.counts).cumsum(0).tolist()
        slots = torch.tensor([forward.slots[row] for row in wanted.rows], dtype=torch.int32)
        ends = torch.tensor([forward.starts[row] + forward.counts[row] for row in wanted.rows], dtype=torch.int32)
        counters = torch.tensor(wanted.counters, dtype=torch.int32)
        buffers: Any = SimpleNamespace(
            header=torch.full((16,), len(slots)), sample_slots=slots, sample_ends=ends, counters=counters
        )
        model: Any = SimpleNamespace(logits=self.logits_of)
        lasts = hidden[[begins[row] - 1 for row in wanted.rows]]
        output = head.Head(model, self.rows).sample(lasts, buffers, self.state)._replace(hidden=hidden)
        assert output.drawn is not None
        model_forward: Any = SimpleNamespace(state=self.state, logits_of=self.logits_of)
        extras = self.gpu.of(step)
        if extras is None:
            ids, failed = output.drawn
            return StepResult(step.number, tuple(ids.tolist()), tuple(failed.nonzero()[:, 0].tolist()))
        reported = self.gpu.start(step, extras, output, buffers, model_forward, lambda number: masks)
        return reported.result(step, output.drawn.numpy())


def pair(room: int = SLOTS) -> Pair:
    state = new_state(SLOTS, CONTEXT, 4, 0, "cpu")
    gpu = logits_processors.CudaLogitsProcessors(SIZE, room, torch.device("cpu"), AllRows())
    tokens = torch.zeros((SLOTS, CONTEXT + 1), dtype=torch.int64)
    whole = Vocabulary(SIZE)
    return Pair(OnCpu(whole, tokens), Logprobs(whole, tokens), tokens, gpu, state)


def some_sampling(draw: random.Random) -> SamplingParams:
    def ids(most: int) -> tuple[int, ...]:
        return tuple(draw.sample(range(SIZE), draw.randint(1, most)))

    adjusted = SamplingParams(
        min_p=draw.choice((0.0, 0.1)),
        presence_penalty=draw.choice((0.0, 1.0)),
        frequency_penalty=draw.choice((0.0, 0.5)),
        repetition_penalty=draw.choice((1.0, 1.5)),
        logit_bias=tuple((token, draw.uniform(-5, 5)) for token in ids(9)) if draw.random() < 0.5 else (),
        allowed_token_ids=ids(60) if draw.random() < 0.3 else (),
        bad_words=tuple(ids(2) for _ in range(40)) if draw.random() < 0.5 else (),
        min_tokens=draw.choice((0, 3)),
        forbidden=ids(30) if draw.random() < 0.5 else (),
    )
    return replace(
        adjusted if draw.random() < 0.6 else SamplingParams(),
        temperature=draw.choice((0.0, 1.0)),
        top_k=draw.choice((0, 20)),
        seed=draw.randrange(99),
        logprobs=draw.choice((None, 0, 4)),
        prompt_logprobs=draw.choice((None, 0, 3)),
    )


@dataclass
class RunningRequest:
    """One request as the scheduler would step it."""

    slot: int
    sampling: SamplingParams
    prompt: int
    known: int


def begin(draw: random.Random, both: Pair, slot: int) -> RunningRequest:
    prompt, generated = draw.randint(2, 150), draw.choice((0, 0, 5))
    tokens = tuple(draw.randrange(SIZE) for _ in range(prompt + generated))
    request = RunningRequest(slot, some_sampling(draw), prompt, len(tokens))
    both.admit(Admit(slot, tokens, request.sampling, generated))
    return request


def prefill(number: int, requests: list[RunningRequest]) -> Step:
    """All of their prompts at once; where asked for, all but the first token is scored, in two parts."""
    scored = []
    for row, request in enumerate(requests):
        if request.sampling.prompt_logprobs is not None:
            half = request.prompt // 2
            parts = ((0, half), (half, request.prompt - 1 - half))
            scored += [Scored(row, first, count) for first, count in parts if count]
    counts = tuple(request.known for request in requests)
    forward = Forward(slots=tuple(request.slot for request in requests), starts=(0,) * len(requests), counts=counts)
    return Step(number, forward, Sample(tuple(range(len(requests))), counters_of(requests), tuple(scored)))


def decode(number: int, requests: list[RunningRequest], masked: tuple[int, ...]) -> Step:
    starts = tuple(request.known - 1 for request in requests)
    forward = Forward(slots=tuple(request.slot for request in requests), starts=starts, counts=(1,) * len(requests))
    return Step(number, forward, Sample(tuple(range(len(requests))), counters_of(requests), masked=masked))


def counters_of(requests: list[RunningRequest]) -> tuple[int, ...]:
    return tuple(request.known - request.prompt for request in requests)


def masks_of(draw: random.Random, step: Step) -> Masks:
    words = -(-SIZE // 32)
    return Masks(step.number, draw.randbytes(4 * words * len(step.sample.masked)))


@pytest.mark.parametrize("room", [SLOTS, 2])
@pytest.mark.parametrize("seed", range(6))
def test_mixed_requests_get_the_results_of_the_cpu(seed: int, room: int) -> None:
    """Prefill, decoding beside masks, and slots that others take over."""
    draw, both = random.Random(seed), pair(room)
    requests = [begin(draw, both, slot) for slot in draw.sample(range(SLOTS), 6)]
    for number in range(1, 12):
        if number % 5 == 1:
            requests[number % 6] = begin(draw, both, requests[number % 6].slot)
            step = prefill(number, requests)
        else:
            step = decode(number, requests, tuple(sorted(draw.sample(range(6), draw.randint(0, 4)))))
        hidden = torch.randn(sum(step.forward.counts), HIDDEN)
        if number == 7:
            hidden[2] = float("nan")
        masks = masks_of(draw, step)
        extras, found = both.on_cpu(step, hidden, masks), both.on_gpu(step, hidden, masks)
        assert found == extras
        assert torch.equal(both.state.tokens[:SLOTS].long(), both.tokens)
        for request in requests:
            request.known += 1


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_share_the_rows_find_what_one_finds(seed: int, ranks: int) -> None:
    """Each with its columns, of which the last one's pad, and with rows of its own; all have what all have found."""
    draw, both = random.Random(seed), pair()
    requests = [begin(draw, both, slot) for slot in range(6)]
    steps = [prefill(1, requests)]
    for number in range(2, 5):
        for request in requests:
            request.known += 1
        steps.append(decode(number, requests, tuple(sorted(draw.sample(range(6), 3)))))
    hiddens = [torch.randn(sum(step.forward.counts), HIDDEN) for step in steps]
    masks = [masks_of(draw, step) for step in steps]
    admits, begun = both.admits, both.state.tokens.clone()
    alone = [both.on_gpu(*one) for one in zip(steps, hiddens, masks, strict=True)]

    def of_rank(collective: ThreadCollective) -> tuple[list[StepResult], torch.Tensor]:
        columns = -(-SIZE // ranks)
        first = columns * collective.rank
        pads = torch.full((HIDDEN, max(0, first + columns - SIZE)), 0.0)
        head = torch.cat((HEAD[:, first : first + columns], pads), dim=1)
        mine = replace(both, state=replace(both.state, tokens=begun.clone()), head=head, pads=pads.shape[1])
        mine.rows = SwappedRows(collective, SIZE)
        mine.gpu = logits_processors.CudaLogitsProcessors(SIZE, SLOTS, torch.device("cpu"), mine.rows)
        for admit in admits:
            mine.gpu.admit(admit)
        return [mine.on_gpu(*one) for one in zip(steps, hiddens, masks, strict=True)], mine.state.tokens

    for results, tokens in on_each(ranks, of_rank):
        for found, wanted in zip(results, alone, strict=True):
            assert (found.ids, found.failed) == (wanted.ids, wanted.failed)
            assert [entry for entry, _ in found.scores] == [entry for entry, _ in wanted.scores]
            for (_, one), (_, other) in zip(found.scores, wanted.scores, strict=True):
                same_scores(one, other, (len(one) // 4 - 3) // 2)
            for one, other in zip(found.prompts, wanted.prompts, strict=True):
                assert len(one) == len(other)
        assert torch.equal(tokens, both.state.tokens)


def test_long_prompts_are_scored_in_portions() -> None:
    both, count = pair(), 2 * SCORED_ROWS + 5
    tokens = tuple(random.Random(1).randrange(SIZE) for _ in range(count + 1))
    both.admit(Admit(4, tokens, SamplingParams(prompt_logprobs=2), 0))
    forward = Forward(slots=(4,), starts=(0,), counts=(count + 1,))
    step = Step(1, forward, Sample((0,), (0,), (Scored(0, 0, count),)))
    hidden = torch.randn(count + 1, HIDDEN)
    found = both.on_gpu(step, hidden, Masks(1, b""))
    assert found == both.on_cpu(step, hidden, Masks(1, b"")) and len(found.prompts[0]) == 4 * count * (1 + 3 + 3)


def test_a_prompt_whose_logits_are_not_finite_is_reported_empty() -> None:
    both = pair()
    both.admit(Admit(4, (1, 2, 3), SamplingParams(prompt_logprobs=2), 0))
    step = Step(1, Forward(slots=(4,), starts=(0,), counts=(3,)), Sample((0,), (0,), (Scored(0, 0, 2),)))
    hidden = torch.randn(3, HIDDEN)
    hidden[1, 0] = float("inf")
    assert both.on_gpu(step, hidden, Masks(1, b"")).prompts == (b"",)


def test_steps_of_requests_that_ask_for_nothing_have_nothing_to_do() -> None:
    both = pair()
    asks = SamplingParams(presence_penalty=1.0, logprobs=1)
    min_p_alone = SamplingParams(temperature=1.0, min_p=0.5)
    for slot, sampling in enumerate((SamplingParams(temperature=1.0), min_p_alone, asks)):
        both.admit(Admit(slot, (1, 2), sampling, 0))
    plain, asking = (decode(1, [RunningRequest(slot, asks, 2, 3) for slot in slots], ()) for slots in ((0, 1), (0, 2)))
    assert both.gpu.of(plain) is None
    assert both.gpu.of(asking) is not None
    both.admit(Admit(2, (1, 2), SamplingParams(), 0))
    assert both.gpu.of(asking) is None, "another request has the slot"
    masked = replace(plain, sample=replace(plain.sample, masked=(1,)))
    extras = both.gpu.of(masked)
    assert extras is not None and extras.redrawn == (1,)


def test_min_tokens_alone_end_when_they_are_reached() -> None:
    both = pair()
    both.admit(Admit(3, (1, 2, 7), SamplingParams(min_tokens=3, forbidden=(5,)), 1))
    busy = [
        both.gpu.of(decode(1, [RunningRequest(3, SamplingParams(), 2, known)], ())) is not None
        for known in (3, 4, 5, 6)
    ]
    assert busy == [True, True, False, False]


def test_a_gpu_announces_the_fields_that_its_kernel_knows() -> None:
    assert logits_processors.GPU_FEATURES == list(FEATURES), "all of them, today"
    assert set(LogitsChanges._fields) == {"prompt", "min_tokens", "forbidden", *LOGITS_FIELDS}
    fewer = logits_processors.served(("presence_penalty", "bad_words"))
    assert set(FEATURES) - set(fewer) == {
        "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
    }  # fmt: skip
