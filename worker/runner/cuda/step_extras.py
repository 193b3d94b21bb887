"""What one step does beside its pass for some of its rows: packed for the device, read when the step is done. Where
ranks share the rows, each does it for its own, and has the results of all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from octavo.kernels.cuda.sampling.adjust import NO_MASK, RowWords, pack_rows
from octavo.kernels.cuda.sampling.logprobs import AskedWords, pack_asked, pack_prompt, result_words
from octavo.kernels.cuda.sampling.sample import OwnSamples
from octavo.kernels.cuda.step_layout.changes import Words
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.runner.cuda.row_share import SCORED_ROWS


@dataclass(frozen=True, slots=True)
class DeviceParams:
    """A request's changes of its logits. address: of their words on the device. until: once it has so many tokens, they
    change nothing any more."""

    address: int
    until: int


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt whose log-probabilities are reported. hidden: index of the first of its hidden states;
    position: of the first of its tokens in `slot`."""

    slot: int
    position: int
    hidden: int
    count: int
    top: int


@dataclass(frozen=True, slots=True)
class StepExtras:
    """Of a step. own: the samples that are this rank's. redrawn: entries (of Sample.rows) that are drawn again from
    changed logits; own_redrawn: this rank's, `rows` what to change, and `masks` which of the step's masks they need.
    reported: entries whose log-probabilities are reported; asked: its own; tops: how many of the likeliest each
    wants."""

    own: OwnSamples
    redrawn: tuple[int, ...]
    own_redrawn: tuple[int, ...]
    rows: tuple[RowWords, ...]
    masks: tuple[int, ...]
    reported: tuple[int, ...]
    asked: tuple[AskedWords, ...]
    tops: tuple[int, ...]
    prompts: tuple[PromptPart, ...]

    @property
    def top(self) -> int:
        """Of the likeliest ids, so many are found for every reported entry."""
        return max(self.tops, default=0)

    def pack(self) -> tuple[Words, list[int]]:
        """For the device, and the sizes of its parts: rows to change, asked, of each part of a prompt asked, entries
        that are drawn again. What is read 16 bytes at a time comes first."""
        prompts = [pack_prompt(one.slot, one.position, one.count, SCORED_ROWS, self.own) for one in self.prompts]
        parts = [pack_rows(self.rows), pack_asked(self.asked), *prompts, np.array(self.own_redrawn, np.int32)]
        return np.concatenate(parts), [len(part) for part in parts]

    @property
    def sizes(self) -> list[int]:
        """Words of the results: log-probabilities of tokens, and of each part of a prompt."""
        prompts = (one.count * result_words(one.top) for one in self.prompts)
        return [len(self.reported) * result_words(self.top), *prompts]

    def result(self, step: Step, drawn: Words, words: Words) -> StepResult:
        """drawn: ids and failures [2, samples] of all entries. words: as `sizes` says."""
        reported, *prompts = np.split(words[: sum(self.sizes)], list(accumulate(self.sizes))[:-1])
        ids, failures = drawn
        return StepResult(
            step.number,
            tuple(ids.tolist()),
            tuple(failures.nonzero()[0].tolist()),
            self._scores(reported.reshape(len(self.reported), result_words(self.top))),
            tuple(_prompt(part.reshape(one.count, -1)) for one, part in zip(self.prompts, prompts, strict=True)),
        )

    def _scores(self, reported: Words) -> tuple[tuple[int, bytes], ...]:
        """The `top` likeliest were found for each entry; each reports as many as its request asked for."""
        values = 4 * (2 + self.top)  # where they begin, after rank and ids
        scores, width = reported[:, 1:].tobytes(), 4 * (reported.shape[1] - 1)
        return tuple(
            (entry, scores[begin : begin + 4 * (2 + top)] + scores[begin + values : begin + values + 4 * (1 + top)])
            for entry, begin, top in zip(self.reported, range(0, len(scores), width), self.tops, strict=True)
        )


def _prompt(reported: Words) -> bytes:
    """Empty when a logit was not finite."""
    return reported[:, 1:].tobytes() if reported[:, 0].all() else b""


def step_extras(
    step: Step,
    own: OwnSamples,
    device_params: Mapping[int, DeviceParams],
    tops: Mapping[int, int],
    prompt_tops: Mapping[int, int],
) -> StepExtras | None:
    """None when there is nothing to do. By slot: changes, and how many of the likeliest are reported beside tokens."""
    sample, forward = step.sample, step.forward
    if not (device_params or tops or sample.masked or sample.scored):
        return None
    of_masks = {entry: index for index, entry in enumerate(sample.masked)}
    slots, starts, counts, rank, size = forward.slots, forward.starts, forward.counts, own.rank, own.size
    redrawn, own_redrawn, rows, masks = list[int](), list[int](), list[RowWords](), list[int]()
    reported, asked, wanted = list[int](), list[AskedWords](), list[int]()
    for entry, row in enumerate(
        sample.rows
    ):  # of each row of a busy step: plain tuples, and nothing is looked up twice
        slot, bound = slots[row], of_masks.get(entry, NO_MASK)
        changes, top = device_params.get(slot), tops.get(slot)
        if changes is None and top is None and bound == NO_MASK:
            continue
        mine, end = entry % size == rank, starts[row] + counts[row]
        address = changes.address if changes is not None and end < changes.until else 0
        if address or bound != NO_MASK:
            redrawn.append(entry)
            if mine:
                own_redrawn.append(entry)
                rows.append((entry // size, slot, end, NO_MASK if bound == NO_MASK else len(masks), address))
                if bound != NO_MASK:
                    masks.append(bound)
        if top is not None:
            if mine:
                asked.append((entry // size, slot, end, len(reported)))
            reported.append(entry)
            wanted.append(top)
    if not (redrawn or reported or sample.scored):
        return None
    prompts = _prompts(step, prompt_tops) if sample.scored else ()
    return StepExtras(
        own, tuple(redrawn), tuple(own_redrawn), tuple(rows), tuple(masks), tuple(reported), tuple(asked),
        tuple(wanted), prompts,
    )  # fmt: skip


def _prompts(step: Step, tops: Mapping[int, int]) -> tuple[PromptPart, ...]:
    forward = step.forward
    begins = _before(forward.counts)
    return tuple(
        PromptPart(
            slot=forward.slots[row],
            position=forward.starts[row] + first + 1,
            hidden=begins[row] + first,
            count=count,
            top=tops[forward.slots[row]],
        )
        for row, first, count in step.sample.scored
    )


def _before(counts: Sequence[int]) -> list[int]:
    return list(accumulate(counts, initial=0))
