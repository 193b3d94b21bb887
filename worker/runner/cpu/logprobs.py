"""Log-probabilities of chosen tokens and of the likeliest, over a vocabulary that ranks share; before any processing.

    log p(v) = logits[v] - logsumexp(logits)        of each rank's columns in float32, of the ranks in float64

The order of the likeliest is by logit, of equal ones by id, whatever the number of ranks. Every rank finds the same.
"""

import struct
from typing import NamedTuple

import torch

from octavo.worker.runner.cpu.sampler import Vocabulary

FLOOR = -9999.0  # JSON knows no infinity


class TokenLogprobs(NamedTuple):
    """finite: [rows] whether the logits were; ranks: [rows] of the token, from 1; ids, values: [rows, 1 + top], the
    token first; values in float32, none below FLOOR."""

    finite: torch.Tensor
    ranks: torch.Tensor
    ids: torch.Tensor
    values: torch.Tensor


def logprobs(logits: torch.Tensor, ids: torch.Tensor, top: int, vocabulary: Vocabulary) -> "Found":
    """Of logits [rows, columns], float32, -inf where they pad: for the token ids [rows] of each row, and for the `top`
    likeliest."""
    return Found(scores(logits, ids, top, vocabulary))


def scores(logits: torch.Tensor, ids: torch.Tensor, top: int, vocabulary: Vocabulary) -> TokenLogprobs:
    """The same, left where the logits are."""
    collective, columns = vocabulary.collective, logits.shape[1]
    local = ids - vocabulary.first
    mine = (local >= 0) & (local < columns)
    own = logits.gather(1, local.clamp(0, columns - 1)[:, None])[:, 0].double()
    chosen = collective.gather(torch.where(mine, own, 0.0)).sum(dim=0)  # [rows]; all but one are 0
    total = collective.gather(logits.logsumexp(dim=1).double()).logsumexp(dim=0)
    ranks = 1 + collective.sum_((logits > chosen.float()[:, None]).count_nonzero(dim=1))
    values, likeliest = _likeliest(logits, min(top, vocabulary.size), vocabulary)
    values = (torch.cat((chosen[:, None], values), dim=1) - total[:, None]).float()
    return TokenLogprobs(
        finite=torch.isfinite(total),
        ranks=ranks,
        ids=torch.cat((ids[:, None], likeliest), dim=1),
        values=values.nan_to_num(FLOOR, 0.0, FLOOR).clamp_(min=FLOOR),
    )


class Found:
    """Scores on their way to the wire."""

    def __init__(self, scores: TokenLogprobs) -> None:
        self.finite = scores.finite
        self._ranks, self._ids, self._values = scores.ranks.tolist(), scores.ids.tolist(), scores.values.tolist()

    def pack(self, row: int, top: int) -> bytes:
        """As proto Scores has it: the token, and the first `top` of the likeliest."""
        ids, values = self._ids[row][: 1 + top], self._values[row][: 1 + top]
        return struct.pack(f"<{1 + len(ids)}I{len(values)}f", self._ranks[row], *ids, *values)


def _likeliest(logits: torch.Tensor, top: int, vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits as float64, ids), each [rows, top], the best first."""
    rows = logits.shape[0]
    if not top:
        none = logits[:, :0]
        return none.double(), none.long()
    gathered = vocabulary.collective.gather(_best_keys(logits, top, vocabulary.first))
    best = gathered.transpose(0, 1).reshape(rows, -1).topk(top, dim=1).values
    return _value(best >> 32).double(), 0xFFFFFFFF - (best & 0xFFFFFFFF)


def _best_keys(logits: torch.Tensor, top: int, first: int) -> torch.Tensor:
    """[rows, top] keys of this rank's likeliest; where it has fewer ids, some that are less than any."""
    columns = logits.shape[1]
    found = logits.topk(min(top + 1, columns), dim=1)
    keys = _keys(found.values, found.indices + first)[:, :top].contiguous()
    if top >= columns:
        return torch.nn.functional.pad(keys, (0, top - columns), value=torch.iinfo(torch.int64).min)
    # Which of equal ones topk takes at its end is open; there, and nowhere else, all have to be looked at.
    open_rows = (found.values[:, top] == found.values[:, top - 1]).nonzero().squeeze(1)
    if open_rows.numel():
        everyone = _keys(logits[open_rows], torch.arange(first, first + columns, device=logits.device))
        keys[open_rows] = everyone.topk(top, dim=1).values
    return keys


def _keys(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """int64 in the order of the logits, of equal ones by falling ids."""
    return (_ascending(logits) << 32) | (0xFFFFFFFF - ids)


def _ascending(logits: torch.Tensor) -> torch.Tensor:
    """int64 in the range of an int32, in the order of the floats; 0 and -0 are equal."""
    bits = (logits + 0.0).view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()


def _value(ordered: torch.Tensor) -> torch.Tensor:
    """The floats again."""
    bits = ordered.int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)
