"""Log-probabilities of chosen tokens and of the likeliest, over a vocabulary that ranks share; before any processing.

    log p(v) = logits[v] - logsumexp(logits)        the sum of all ranks, in float64

The order of the likeliest is by logit, of equal ones by id, whatever the number of ranks. Every rank finds the same.
"""

import struct

import torch

from octavo.worker.cpu.sampler import Vocabulary

FLOOR = -9999.0  # JSON knows no infinity


def logprobs(logits: torch.Tensor, ids: torch.Tensor, top: int, vocabulary: Vocabulary) -> "Found":
    """Of logits [rows, columns], float32, -inf where they pad: for the token ids [rows] of each row, and for the `top`
    likeliest."""
    collective, columns = vocabulary.collective, logits.shape[1]
    local = ids - vocabulary.first
    mine = (local >= 0) & (local < columns)
    own = logits.gather(1, local.clamp(0, columns - 1)[:, None])[:, 0].double()
    chosen = collective.sum_(torch.where(mine, own, 0.0))  # [rows]
    best, sums = _exponents(logits)
    parts = collective.gather(torch.stack((best, sums)))  # [ranks, 2, rows]
    most = parts[:, 0].max(dim=0).values
    total = most + (parts[:, 1] * (parts[:, 0] - most).exp()).sum(dim=0).log()
    ranks = 1 + collective.sum_((logits > chosen[:, None]).sum(dim=1))
    values, likeliest = _likeliest(logits, min(top, vocabulary.size), vocabulary)
    return Found(
        finite=torch.isfinite(total),
        ranks=ranks,
        ids=torch.cat((ids[:, None], likeliest), dim=1),
        values=(torch.cat((chosen[:, None], values), dim=1) - total[:, None]).float(),
    )


class Found:
    """finite: [rows] whether the logits were; ranks: [rows] of the token, from 1; ids, values: [rows, 1 + top], the
    token first."""

    def __init__(self, finite: torch.Tensor, ranks: torch.Tensor, ids: torch.Tensor, values: torch.Tensor) -> None:
        self.finite = finite
        self._ranks, self._ids = ranks.tolist(), ids.tolist()
        self._values = values.nan_to_num(FLOOR, 0.0, FLOOR).clamp_(min=FLOOR).tolist()

    def pack(self, row: int, top: int) -> bytes:
        """As proto Scores has it: the token, and the `top` likeliest of those found."""
        ids, values = self._ids[row][: 1 + top], self._values[row][: 1 + top]
        return struct.pack(f"<{1 + len(ids)}I{len(values)}f", self._ranks[row], *ids, *values)


def _exponents(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of this rank's logits [rows], and the sum of their exponents beyond it; where all pad, nothing."""
    best = logits.max(dim=1).values.double().clamp(min=-torch.finfo(torch.float32).max)
    return best, (logits.double() - best[:, None]).exp().sum(dim=1)


def _likeliest(logits: torch.Tensor, top: int, vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits as float64, ids), each [rows, top], the best first."""
    rows, columns = logits.shape
    if not top:
        return torch.empty((rows, 0), dtype=torch.float64), torch.empty((rows, 0), dtype=torch.int64)
    ids = torch.arange(vocabulary.first, vocabulary.first + columns)
    keys = (_ascending(logits) << 32) | (0xFFFFFFFF - ids)
    if top > columns:  # so few ids: what is missing is less likely than any
        keys = torch.nn.functional.pad(keys, (0, top - columns), value=torch.iinfo(torch.int64).min)
    local = keys.topk(top, dim=1).values.contiguous()
    gathered = vocabulary.collective.gather(local).transpose(0, 1).reshape(rows, -1)
    best = gathered.topk(top, dim=1).values
    return _value(best >> 32).double(), 0xFFFFFFFF - (best & 0xFFFFFFFF)


def _ascending(logits: torch.Tensor) -> torch.Tensor:
    """int64 in the range of an int32, in the order of the floats; 0 and -0 are equal."""
    bits = (logits + 0.0).view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()


def _value(ordered: torch.Tensor) -> torch.Tensor:
    """The floats again."""
    bits = ordered.int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)
