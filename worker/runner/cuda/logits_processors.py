"""Changes of logits and log-probabilities on the device. A step without such requests pays nothing for them; else its
pass is the same, and the extras follow:

    pass -> logits, ids of all rows
               |-> adjust -> rows of float32 -> sample     of rows to be changed, which are drawn a second time
               `-> log-probabilities                       of the logits as they were

Where ranks share the rows (row_share.py) each does so for its own, and then all have the ids and the results.

A request's changes go to the device when it is admitted; what it has generated lies in the token pool. Nothing is
counted on the way, so that nothing has to be counted again when it is preempted. The masks of a grammar are waited for
when the pass is on its way already (docs/decisions/0010).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from octavo.kernels.cuda.sampling.adjust import ROW_WORDS, LogitsChanges, adjust, new_rows, pack_changes_of_logits
from octavo.kernels.cuda.sampling.logprobs import ASKED_WORDS, logprobs, result_words
from octavo.kernels.cuda.sampling.sample import sample
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.shared.sampling_params import LOGITS_FIELDS, SamplingParams
from octavo.worker.messages.request import FEATURES
from octavo.worker.messages.step import Admit, Masks, MaskSource, Step, StepResult
from octavo.worker.runner.cuda.buffers import download_words, upload_words
from octavo.worker.runner.cuda.head import ForwardOutput
from octavo.worker.runner.cuda.model_forward import ModelForward
from octavo.worker.runner.cuda.row_share import SCORED_ROWS, RowShare
from octavo.worker.runner.cuda.step_extras import DeviceParams, PromptPart, StepExtras, step_extras

_ROWS_BYTES = 128 << 20  # of changed rows at a time: 260 of a vocabulary of 128k
_ALWAYS = 1 << 31
_NOTHING = torch.empty(0, dtype=torch.int32)


def served(known: Collection[str]) -> list[str]:
    """The FEATURES of a device whose kernel knows these of the fields that change logits."""
    return [name for name in FEATURES if name not in LOGITS_FIELDS or name in known]


GPU_FEATURES = served(LogitsChanges._fields)


@dataclass(frozen=True, slots=True)
class PendingExtras:
    """On its way up. words: pinned, as StepExtras.sizes says; there when the step is done."""

    step_extras: StepExtras
    words: torch.Tensor

    def result(self, step: Step, drawn: npt.NDArray[np.int32]) -> StepResult:
        """drawn: [2, samples], ids and failures."""
        return self.step_extras.result(step, drawn, self.words.numpy())


class CudaLogitsProcessors:
    def __init__(self, vocabulary: int, slots: int, device: torch.device, row_share: RowShare) -> None:
        """slots: requests at most."""
        self._vocabulary, self._device, self._row_share = vocabulary, device, row_share
        room = min(row_share.own_samples.count(slots), max(1, _ROWS_BYTES // (4 * vocabulary)))
        self._rows = new_rows(max(1, room), vocabulary, device)
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
        return step_extras(step, self._row_share.own_samples, self._device_params, self._tops, self._prompt_tops)

    def start(
        self,
        step: Step,
        extras: StepExtras,
        output: ForwardOutput,
        buffers: StepBuffers,
        model_forward: ModelForward,
        masks: MaskSource,
    ) -> PendingExtras:
        """output, buffers: of the step's pass, which is on its way; it kept hidden states where a prompt is scored.
        What is drawn again takes the place of what the pass has drawn."""
        logits, drawn, state = output.logits, output.drawn, model_forward.state
        assert logits is not None and drawn is not None, "a pass of all the model has logits"
        packed, sizes = extras.pack()
        rows, asked, *of_prompts, redrawn = upload_words(packed, self._device).split(sizes)
        up, of_tokens, on_prompts = self._new_results(extras.sizes)
        for prompt, part, results in zip(extras.prompts, of_prompts, on_prompts, strict=True):
            self._report_prompt(prompt, part, output, model_forward, results)
        if extras.redrawn:
            bits = self._upload(masks(step.number), extras, len(step.sample.masked)) if step.sample.masked else None
            for first, end in _slices(len(extras.own_redrawn), len(self._rows)):
                changed, some = self._rows[: end - first], rows[ROW_WORDS * first : ROW_WORDS * end]
                adjust(logits, some, state.tokens, bits, changed)
                sample(changed, buffers, state, drawn, chosen=redrawn[first:end])
            self._row_share.share(drawn, buffers, state)
        if extras.reported:
            logprobs(logits, asked, state.tokens, extras.top, of_tokens.view(-1, result_words(extras.top)))
        if extras.reported or extras.prompts:
            self._row_share.add_up(up)
        return PendingExtras(extras, download_words(up) if len(up) else up)

    def _new_results(self, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]:
        """All words, the ones of tokens, and of each part of a prompt. Where several ranks fill in theirs, zeros stand
        in others' places."""
        words = sum(sizes)
        if not words:
            return _NOTHING, _NOTHING, ()
        make = torch.empty if self._row_share.own_samples.size == 1 else torch.zeros
        up = make(words + words % 2, dtype=torch.int32, device=self._device)
        of_tokens, *on_prompts = up[:words].split(sizes)
        return up, of_tokens, on_prompts

    def _upload(self, masks: Masks, extras: StepExtras, bound: int) -> torch.Tensor:
        """[own masks, words], of masks of all bound rows."""
        bits = np.frombuffer(masks.bits, np.int32).reshape(bound, -1)
        own = bits if len(extras.masks) == bound else bits[list(extras.masks)]
        return upload_words(own.reshape(-1), self._device).view(own.shape)

    def _report_prompt(
        self,
        prompt: PromptPart,
        asked: torch.Tensor,
        output: ForwardOutput,
        model_forward: ModelForward,
        up: torch.Tensor,
    ) -> None:
        assert output.hidden is not None, "a pass whose prompts are scored keeps its hidden states"
        results, begin = up.view(prompt.count, -1), 0
        for first, end in _slices(prompt.count, SCORED_ROWS):
            logits = model_forward.logits_of(output.hidden[prompt.hidden + first : prompt.hidden + end])
            own = self._row_share.own_prompt_rows(logits)
            part = asked[begin : begin + ASKED_WORDS * len(own)]
            logprobs(own, part, model_forward.state.tokens, prompt.top, results)
            begin += len(part)


def _slices(count: int, each: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + each, count)) for first in range(0, count, each))


def changes_of(params: SamplingParams, prompt: int) -> LogitsChanges:
    """The fields that the kernel knows. min_p is not among them: it is of the draw, as top_p is."""
    names = LogitsChanges._fields[1:]
    return LogitsChanges(prompt, **{name: getattr(params, name) for name in names})
