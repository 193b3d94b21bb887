"""Changes of some requests' rows of the logits before the draw, by slot. A function of one rank's columns alone.

allowed_token_ids, min_tokens  -> -inf    no other id is drawn
bad_words                      -> -1e30   as good as never: when nothing else is allowed, one of them still is drawn
logit_bias                     + value
repetition_penalty             / or *     of ids in the prompt or generated, towards less likely (Keskar 2019)
presence, frequency penalty    - penalty, - penalty x count     of generated ids

A request that changes nothing costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit
from octavo.worker.runner.cpu.sampler import Vocabulary

UNLIKELY = -1e30


@dataclass(frozen=True, slots=True)
class Columns:
    """One rank's columns of the logits: ids from `first` on."""

    first: int
    count: int

    def of(self, ids: torch.Tensor) -> torch.Tensor:
        """Of ids [n], the columns of the ones that this rank has."""
        return ids[(ids >= self.first) & (ids < self.first + self.count)] - self.first


class RowChanges:
    """One request's changes on some columns, as tensors: made once, applied in every step."""

    def __init__(self, params: SamplingParams, columns: Columns) -> None:
        self.params, self.columns = params, columns
        allowed = params.allowed_token_ids
        self.allowed = columns.of(torch.tensor(allowed, dtype=torch.int64)) if allowed else None
        self.forbidden = columns.of(torch.tensor(params.forbidden, dtype=torch.int64))
        end = columns.first + columns.count
        bias = [(token - columns.first, value) for token, value in params.logit_bias if columns.first <= token < end]
        self.places = torch.tensor([place for place, _ in bias], dtype=torch.int64)
        self.values = torch.tensor([value for _, value in bias], dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class AdjustedRow:
    """A row of the logits and its request. tokens: [n] ids of the prompt, then generated ones."""

    row: int
    changes: RowChanges
    tokens: torch.Tensor
    generated: int


def adjust_(logits: torch.Tensor, rows: Sequence[AdjustedRow]) -> None:
    """Change rows of logits [rows, columns] in place."""
    for row in rows:
        _adjust_row(logits[row.row], row)


def _adjust_row(logits: torch.Tensor, row: AdjustedRow) -> None:
    """logits: [columns]"""
    changes = row.changes
    params, columns = changes.params, changes.columns
    generated = row.tokens[row.tokens.shape[0] - row.generated :]
    if changes.allowed is not None:
        kept = logits[changes.allowed]
        logits.fill_(float("-inf"))
        logits[changes.allowed] = kept
    if row.generated < params.min_tokens:
        logits[changes.forbidden] = float("-inf")
    if params.bad_words:
        bad = columns.of(torch.tensor(_last_of(params.bad_words, generated), dtype=torch.int64))
        logits[bad] = logits[bad].clamp(max=UNLIKELY)
    if params.logit_bias:
        logits[changes.places] += changes.values
    if (penalty := params.repetition_penalty) != 1:
        seen = columns.of(row.tokens).unique()
        given = logits[seen]
        logits[seen] = torch.where(given > 0, given / penalty, given * penalty)
    if params.presence_penalty or params.frequency_penalty:
        seen, counts = columns.of(generated).unique(return_counts=True)
        logits[seen] -= params.presence_penalty + params.frequency_penalty * counts


def _last_of(words: Sequence[Sequence[int]], generated: torch.Tensor) -> list[int]:
    """The last id of each word whose others are what has been generated last."""
    longest = max(map(len, words))
    tail = tuple(generated[-longest:].tolist())
    return [
        word[-1]
        for word in words
        if len(word) == 1 or (len(word) - 1 <= len(tail) and tail[1 - len(word) :] == tuple(word[:-1]))
    ]


class LogitsProcessors:
    def __init__(self, vocabulary: Vocabulary, tokens: torch.Tensor) -> None:
        """tokens: the pool, [slots, context]; here it holds sampled ids too."""
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._changed: dict[int, tuple[SamplingParams, int]] = {}  # by slot: how, tokens of the prompt
        self._changes: dict[int, RowChanges] = {}  # the same for these columns, once needed
        self._min_p: dict[int, float] = {}

    def admit(self, admit: Admit) -> None:
        """Another request has the slot."""
        sampling, slot = admit.sampling, admit.slot
        for processors in (self._changed, self._changes, self._min_p):
            processors.pop(slot, None)
        if sampling.changes_logits:
            self._changed[slot] = sampling, len(admit.tokens) - admit.generated_before
        if sampling.min_p:
            self._min_p[slot] = sampling.min_p

    def min_p(self, slots: list[int]) -> torch.Tensor | None:
        """[rows]; None when no row has it."""
        if not self._min_p:
            return None
        values = [self._min_p.get(slot, 0.0) for slot in slots]
        return torch.tensor(values) if any(values) else None

    def adjust(self, logits: torch.Tensor, slots: list[int], ends: list[int]) -> None:
        """Change logits [rows, columns] in place. ends: known tokens of each."""
        if not self._changed:
            return
        rows = []
        for row, (slot, end) in enumerate(zip(slots, ends, strict=True)):
            if slot in self._changed:
                params, prompt = self._changed[slot]
                if slot not in self._changes:
                    self._changes[slot] = RowChanges(params, Columns(self._vocabulary.first, logits.shape[1]))
                rows.append(AdjustedRow(row, self._changes[slot], self._tokens[slot, :end], end - prompt))
        adjust_(logits, rows)
