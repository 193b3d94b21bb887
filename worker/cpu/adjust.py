"""What few requests ask: changes of their rows of the logits before the draw. A function of one rank's columns alone.

allowed, min_tokens   -> -inf        no other id is drawn
bad_words             -> -1e30       as good as never: when nothing else is allowed, one of them still is drawn
bias                  + value
repetition_penalty    / or *         of ids in the prompt or generated, towards less likely (Keskar 2019)
presence, frequency   - penalty, - penalty x count     of generated ids
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.worker.request import Adjust

UNLIKELY = -1e30


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A row of the logits and its request. tokens: [n] ids of the prompt, then those generated."""

    row: int
    how: Adjust
    tokens: torch.Tensor
    generated: int


def adjust_(logits: torch.Tensor, rows: Sequence[Adjusted], first: int) -> None:
    """Change rows of logits [rows, columns] in place; its columns are the ids from `first` on."""
    for row in rows:
        _adjust_row(logits[row.row], row, first)


def _adjust_row(logits: torch.Tensor, row: Adjusted, first: int) -> None:
    """logits: [columns]"""
    how, columns = row.how, logits.shape[0]
    prompt = row.tokens.shape[0] - row.generated
    generated = row.tokens[prompt:]
    if how.allowed:
        allowed = _columns(torch.tensor(how.allowed), first, columns)
        kept = logits[allowed]
        logits.fill_(float("-inf"))
        logits[allowed] = kept
    if row.generated < how.min_tokens:
        logits[_columns(torch.tensor(how.forbidden, dtype=torch.int64), first, columns)] = float("-inf")
    if how.bad_words:
        bad = torch.tensor(_last_of(how.bad_words, generated), dtype=torch.int64)
        bad = _columns(bad, first, columns)
        logits[bad] = logits[bad].clamp(max=UNLIKELY)
    if how.bias:
        ids, values = zip(*how.bias, strict=True)
        mine = [index for index, token in enumerate(ids) if first <= token < first + columns]
        places = torch.tensor([ids[index] - first for index in mine], dtype=torch.int64)
        logits[places] += torch.tensor([values[index] for index in mine])
    if how.repetition_penalty != 1:
        seen = _columns(row.tokens, first, columns).unique()
        given = logits[seen]
        logits[seen] = torch.where(given > 0, given / how.repetition_penalty, given * how.repetition_penalty)
    if how.presence_penalty or how.frequency_penalty:
        seen, counts = _columns(generated, first, columns).unique(return_counts=True)
        logits[seen] -= how.presence_penalty + how.frequency_penalty * counts


def _columns(ids: torch.Tensor, first: int, columns: int) -> torch.Tensor:
    """Of ids [n], the columns of those that are here."""
    return ids[(ids >= first) & (ids < first + columns)] - first


def _last_of(words: Sequence[Sequence[int]], generated: torch.Tensor) -> list[int]:
    """The last id of each word whose others are what has been generated last."""
    longest = max(map(len, words))
    tail = tuple(generated[-longest:].tolist())
    return [
        word[-1]
        for word in words
        if len(word) == 1 or (len(word) - 1 <= len(tail) and tail[1 - len(word) :] == tuple(word[:-1]))
    ]
