"""Changes of some requests' rows of the logits before the draw. A function of one rank's columns alone.

allowed, min_tokens   -> -inf        no other id is drawn
bad_words             -> -1e30       as good as never: when nothing else is allowed, one of them still is drawn
bias                  + value
repetition_penalty    / or *         of ids in the prompt or generated, towards less likely (Keskar 2019)
presence, frequency   - penalty, - penalty x count     of generated ids
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.worker.messages.request import Adjust

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

    def __init__(self, how: Adjust, columns: Columns) -> None:
        self.how, self.columns = how, columns
        self.allowed = columns.of(torch.tensor(how.allowed, dtype=torch.int64)) if how.allowed else None
        self.forbidden = columns.of(torch.tensor(how.forbidden, dtype=torch.int64))
        end = columns.first + columns.count
        bias = [(token - columns.first, value) for token, value in how.bias if columns.first <= token < end]
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
    how, columns = changes.how, changes.columns
    generated = row.tokens[row.tokens.shape[0] - row.generated :]
    if changes.allowed is not None:
        kept = logits[changes.allowed]
        logits.fill_(float("-inf"))
        logits[changes.allowed] = kept
    if row.generated < how.min_tokens:
        logits[changes.forbidden] = float("-inf")
    if how.bad_words:
        bad = columns.of(torch.tensor(_last_of(how.bad_words, generated), dtype=torch.int64))
        logits[bad] = logits[bad].clamp(max=UNLIKELY)
    if how.bias:
        logits[changes.places] += changes.values
    if how.repetition_penalty != 1:
        seen = columns.of(row.tokens).unique()
        given = logits[seen]
        logits[seen] = torch.where(given > 0, given / how.repetition_penalty, given * how.repetition_penalty)
    if how.presence_penalty or how.frequency_penalty:
        seen, counts = columns.of(generated).unique(return_counts=True)
        logits[seen] -= how.presence_penalty + how.frequency_penalty * counts


def _last_of(words: Sequence[Sequence[int]], generated: torch.Tensor) -> list[int]:
    """The last id of each word whose others are what has been generated last."""
    longest = max(map(len, words))
    tail = tuple(generated[-longest:].tolist())
    return [
        word[-1]
        for word in words
        if len(word) == 1 or (len(word) - 1 <= len(tail) and tail[1 - len(word) :] == tuple(word[:-1]))
    ]
