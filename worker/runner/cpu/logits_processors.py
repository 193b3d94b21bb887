"""Changes of logits and log-probabilities, by slot; a request that asks for neither costs nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from octavo.worker.messages.request import Adjust
from octavo.worker.messages.step import Admit, Step
from octavo.worker.runner.cpu.adjust import AdjustedRow, Columns, RowChanges, adjust_
from octavo.worker.runner.cpu.logprobs import logprobs
from octavo.worker.runner.cpu.sampler import Vocabulary

LogitsOf: TypeAlias = Callable[[torch.Tensor], torch.Tensor]  # hidden states to this rank's logits

_SCORED_ROWS = 64  # logits of a prompt at a time: a bound to memory


@dataclass(frozen=True, slots=True)
class RawLogits:
    """Logits [asking, columns] before any change, of the sampled entries that want log-probabilities."""

    entries: tuple[int, ...]
    logits: torch.Tensor


class LogitsProcessors:
    def __init__(self, vocabulary: Vocabulary, tokens: torch.Tensor) -> None:
        """tokens: the pool, [slots, context]; here it holds sampled ids too."""
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._adjusts: dict[int, tuple[Adjust, int]] = {}  # by slot: how, tokens of the prompt
        self._changes: dict[int, RowChanges] = {}  # the same for these columns, once needed
        self._tops: dict[int, int] = {}  # by slot: of sampled tokens
        self._prompt_tops: dict[int, int] = {}

    def admit(self, admit: Admit) -> None:
        """Another request has the slot."""
        sampling, slot = admit.sampling, admit.slot
        for processors in (self._adjusts, self._changes, self._tops, self._prompt_tops):
            processors.pop(slot, None)
        if sampling.adjust is not None:
            self._adjusts[slot] = sampling.adjust, len(admit.tokens) - admit.generated_before
        if sampling.logprobs is not None:
            self._tops[slot] = sampling.logprobs
        if sampling.prompt_logprobs is not None:
            self._prompt_tops[slot] = sampling.prompt_logprobs

    def min_p(self, slots: list[int]) -> torch.Tensor | None:
        """[rows]; None when no row has it."""
        if not self._adjusts:
            return None
        values = [self._adjusts[slot][0].min_p if slot in self._adjusts else 0.0 for slot in slots]
        return torch.tensor(values) if any(values) else None

    def adjust(self, logits: torch.Tensor, slots: list[int], ends: list[int]) -> None:
        """Change logits [rows, columns] in place. ends: known tokens of each."""
        if not self._adjusts:
            return
        rows = []
        for row, (slot, end) in enumerate(zip(slots, ends, strict=True)):
            if slot in self._adjusts:
                how, prompt = self._adjusts[slot]
                if slot not in self._changes:
                    self._changes[slot] = RowChanges(how, Columns(self._vocabulary.first, logits.shape[1]))
                rows.append(AdjustedRow(row, self._changes[slot], self._tokens[slot, :end], end - prompt))
        adjust_(logits, rows)

    def raw(self, logits: torch.Tensor, slots: list[int]) -> RawLogits | None:
        """A copy of what `scores` will need; None when no row needs it."""
        entries = tuple(entry for entry, slot in enumerate(slots) if slot in self._tops) if self._tops else ()
        return RawLogits(entries, logits[list(entries)]) if entries else None

    def scores(self, raw: RawLogits | None, slots: list[int], ids: torch.Tensor) -> tuple[tuple[int, bytes], ...]:
        """As StepResult.scores; ids: [rows], what was sampled."""
        if raw is None:
            return ()
        tops = [self._tops[slots[entry]] for entry in raw.entries]
        found = logprobs(raw.logits, ids[list(raw.entries)], max(tops), self._vocabulary)
        return tuple((entry, found.pack(row, tops[row])) for row, entry in enumerate(raw.entries))

    def prompts(self, step: Step, hidden: torch.Tensor, logits_of: LogitsOf) -> tuple[bytes, ...]:
        """As StepResult.prompts. hidden: of all rows' last positions, then of the scored ones."""
        forward, begin = step.forward, len(step.forward.slots)
        results = []
        for row, first, count in step.sample.scored:
            slot, at = forward.slots[row], forward.starts[row] + first
            ids = self._tokens[slot, at + 1 : at + 1 + count]
            results.append(self._prompt(hidden[begin : begin + count], ids, self._prompt_tops[slot], logits_of))
            begin += count
        return tuple(results)

    def _prompt(self, hidden: torch.Tensor, ids: torch.Tensor, top: int, logits_of: LogitsOf) -> bytes:
        """Empty when a logit is not finite."""
        packed: list[bytes] = []
        finite = True
        for rows, tokens in zip(hidden.split(_SCORED_ROWS), ids.split(_SCORED_ROWS), strict=True):
            found = logprobs(logits_of(rows), tokens, top, self._vocabulary)
            finite &= bool(found.finite.all())
            packed += [found.pack(row, top) for row in range(len(tokens))]
        return b"".join(packed) if finite else b""
