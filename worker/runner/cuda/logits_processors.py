"""Changes of logits and log-probabilities on the device. A step without such requests pays nothing for them; else its
pass is the same, and the extras follow:

    pass -> logits, ids of all rows
               |-> adjust -> rows of float32 -> sample     of rows to be changed, which are drawn a second time
               `-> log-probabilities                       of the logits as they were

A request's changes go to the device when it is admitted; what it has generated lies in the token pool. Nothing is
counted on the way, so that nothing has to be counted again when it is preempted. The masks of a grammar are waited for
when the pass is on its way already (docs/decisions/0010).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from octavo.kernels.cuda.sampling.adjust import ROW_WORDS, LogitsChanges, adjust, new_rows, pack_changes_of_logits
from octavo.kernels.cuda.sampling.logprobs import ASKED_WORDS, result_words
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import HEADER_WORDS
from octavo.shared.sampling_params import LOGITS_FIELDS, SamplingParams
from octavo.worker.messages.request import FEATURES
from octavo.worker.messages.step import Admit, Masks, MaskSource, Step, StepResult
from octavo.worker.runner.cuda.buffers import download_words, upload_words
from octavo.worker.runner.cuda.head import ForwardOutput
from octavo.worker.runner.cuda.model_forward import ModelForward
from octavo.worker.runner.cuda.step_extras import SCORED_ROWS, DeviceParams, PromptPart, StepExtras, step_extras
from octavo.worker.runner.cuda.vocab_parallel import VocabSampler

_ROWS_BYTES = 128 << 20  # of changed rows at a time: 260 of a vocabulary of 128k
_ALWAYS = 1 << 31


def served(known: Collection[str]) -> list[str]:
    """The FEATURES of a device whose kernel knows these of the fields that change logits."""
    return [name for name in FEATURES if name not in LOGITS_FIELDS or name in known]


GPU_FEATURES = served(LogitsChanges._fields)


@dataclass(frozen=True, slots=True)
class Draws:
    """Samples in rows of their own, all of them real: as kernels/cuda/sampling/sample.py has them."""

    header: torch.Tensor
    sample_slots: torch.Tensor
    sample_ends: torch.Tensor
    counters: torch.Tensor


@dataclass(frozen=True, slots=True)
class Resample:
    """What is drawn a second time. logits: [samples, vocabulary]; rows, masks: as `adjust` has them; the rest: [n]."""

    logits: torch.Tensor
    rows: torch.Tensor
    masks: torch.Tensor | None
    slots: torch.Tensor
    ends: torch.Tensor
    counters: torch.Tensor


@dataclass(frozen=True, slots=True)
class PendingExtras:
    """On its way up. words: pinned, as StepExtras.sizes says; there when the step is done."""

    step_extras: StepExtras
    words: torch.Tensor
    room: int

    def result(self, step: Step, drawn: npt.NDArray[np.int32]) -> StepResult:
        """drawn: [2, samples], ids and failures of the pass."""
        return self.step_extras.result(step, drawn.copy(), self.words.numpy(), self.room)


class CudaLogitsProcessors:
    def __init__(
        self,
        vocabulary: int,
        columns: int,
        slots: int,
        device: torch.device,
        vocab_sampler: VocabSampler,
        sends_ids: bool,
    ) -> None:
        """columns: of the vocabulary, this rank's. sends_ids: another stage receives the ids of a pass."""
        self._vocabulary, self._device = vocabulary, device
        self._vocab_sampler, self._sends_ids = vocab_sampler, sends_ids
        self.room = min(slots, max(1, _ROWS_BYTES // (4 * columns)))
        self._rows = new_rows(self.room, columns, device)
        self._header = torch.full((HEADER_WORDS,), 1 << 30, dtype=torch.int32, device=device)
        self._words: dict[int, torch.Tensor] = {}  # by slot: changes on the device
        self._device_params: dict[int, DeviceParams] = {}
        self._tops: dict[int, int] = {}  # by slot: of sampled tokens
        self._prompt_tops: dict[int, int] = {}

    def admit(self, admit: Admit) -> None:
        """Another request has the slot. What steps under way read of the one before is not overwritten: memory that is
        given back is used again in the order of the stream."""
        sampling, slot = admit.sampling, admit.slot
        for processors in (self._words, self._device_params, self._tops, self._prompt_tops):
            processors.pop(slot, None)
        if sampling.changes_logits:
            prompt = len(admit.tokens) - admit.generated_before
            until = _ALWAYS if sampling.always_changes_logits else prompt + sampling.min_tokens
            if len(admit.tokens) < until:
                packed = pack_changes_of_logits(changes_of(sampling, prompt), self._vocabulary)
                words = upload_words(packed, self._device)
                self._words[slot], self._device_params[slot] = words, DeviceParams(words.data_ptr(), until)
        if sampling.logprobs is not None:
            self._tops[slot] = min(sampling.logprobs, self._vocabulary)
        if sampling.prompt_logprobs is not None:
            self._prompt_tops[slot] = min(sampling.prompt_logprobs, self._vocabulary)

    def of(self, step: Step) -> StepExtras | None:
        """What the step has to do beside its pass; None for nothing."""
        return step_extras(step, self._device_params, self._tops, self._prompt_tops)

    def start(
        self, step: Step, extras: StepExtras, output: ForwardOutput, model_forward: ModelForward, masks: MaskSource
    ) -> PendingExtras:
        """output: of the step's pass, which is on its way; it kept hidden states where a prompt is scored."""
        logits = output.logits
        assert logits is not None, "a pass of all the model has logits"
        packed = upload_words(extras.pack(), self._device)
        count, reported, scored = len(extras.drawn), len(extras.reported), sum(one.count for one in extras.prompts)
        parts = (ROW_WORDS * count, ASKED_WORDS * reported, ASKED_WORDS * scored, count, count, count)
        rows, asked, of_prompts, *draws = packed.split(parts)
        up = torch.empty(sum(extras.sizes), dtype=torch.int32, device=self._device)
        resampled, of_tokens, *on_prompts = up.split(extras.sizes)
        parts_asked = of_prompts.split([ASKED_WORDS * one.count for one in extras.prompts])
        for prompt, part, results in zip(extras.prompts, parts_asked, on_prompts, strict=True):
            self._report_prompt(prompt, part, output, model_forward, results)
        if count:
            bits = self._upload(masks(step.number), len(step.sample.masked)) if step.sample.masked else None
            self._resample(Resample(logits, rows, bits, *draws), model_forward.state, resampled)
            if self._sends_ids:
                self._put(extras, resampled, output)
        if reported:
            of_tokens = of_tokens.view(reported, result_words(extras.top))
            self._vocab_sampler.logprobs(logits, asked, model_forward.state.tokens, extras.top, of_tokens)
        return PendingExtras(extras, download_words(up), self.room)

    def _upload(self, masks: Masks, bound: int) -> torch.Tensor:
        """[bound, words]"""
        return upload_words(np.frombuffer(masks.bits, np.int32), self._device).view(bound, -1)

    def _resample(self, resampled: Resample, state: DeviceState, up: torch.Tensor) -> None:
        for first, end in _slices(len(resampled.counters), self.room):
            changed, rows = self._rows[: end - first], resampled.rows[ROW_WORDS * first : ROW_WORDS * end]
            adjust(resampled.logits, rows, state.tokens, resampled.masks, changed, self._vocab_sampler.first)
            slots, ends, counters = (part[first:end] for part in (resampled.slots, resampled.ends, resampled.counters))
            draws = Draws(self._header, slots, ends, counters)
            self._vocab_sampler.sample(changed, draws, state, up[2 * first : 2 * end])

    def _put(self, extras: StepExtras, resampled: torch.Tensor, output: ForwardOutput) -> None:
        """The second draw among the ids of the pass."""
        assert output.ids is not None
        entries = upload_words(np.array(extras.drawn, np.int32), self._device).long()
        for first, end in _slices(len(extras.drawn), self.room):
            output.ids.index_copy_(0, entries[first:end], resampled[2 * first : first + end])

    def _report_prompt(
        self,
        prompt: PromptPart,
        asked: torch.Tensor,
        output: ForwardOutput,
        model_forward: ModelForward,
        up: torch.Tensor,
    ) -> None:
        assert output.hidden is not None, "a pass whose prompts are scored keeps its hidden states"
        reported = up.view(prompt.count, -1)
        for first, end in _slices(prompt.count, SCORED_ROWS):
            logits = model_forward.logits_of(output.hidden[prompt.hidden + first : prompt.hidden + end])
            part = asked[ASKED_WORDS * first : ASKED_WORDS * end]
            self._vocab_sampler.logprobs(logits, part, model_forward.state.tokens, prompt.top, reported[first:end])


def _slices(count: int, each: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + each, count)) for first in range(0, count, each))


def changes_of(params: SamplingParams, prompt: int) -> LogitsChanges:
    """The fields that the kernel knows. min_p is not among them: it is of the draw, as top_p is."""
    names = LogitsChanges._fields[1:]
    return LogitsChanges(prompt, **{name: getattr(params, name) for name in names})
