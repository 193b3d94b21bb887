"""Log-probabilities of chosen tokens and of the likeliest, over a vocabulary that ranks share; before any processing.

    log p(v) = logits[v] - logsumexp(logits)        of each rank's columns in float32, of the ranks in float64

The order of the likeliest is by logit, of equal ones by id, whatever the number of ranks. Every rank finds the same.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch

from octavo.worker.messages.step import Admit, Step
from octavo.worker.runner.cpu.sampler import Vocabulary

LogitsOf: TypeAlias = Callable[[torch.Tensor], torch.Tensor]  # hidden states to this rank's logits

FLOOR = -9999.0  # JSON knows no infinity
_SCORED_ROWS = 64  # logits of a prompt at a time: a bound to memory


@dataclass(frozen=True, slots=True)
class RawLogits:
    """Logits [asking, columns] before any change, of the sampled entries that want log-probabilities."""

    entries: tuple[int, ...]
    logits: torch.Tensor


class Logprobs:
    """Of requests by slot; a request that asks for none costs nothing."""

    def __init__(self, vocabulary: Vocabulary, tokens: torch.Tensor) -> None:
        """tokens: the pool, [slots, context]."""
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._tops: dict[int, int] = {}  # by slot: of sampled tokens
        self._prompt_tops: dict[int, int] = {}

    def admit(self, admit: Admit) -> None:
        """Another request has the slot."""
        sampling, slot = admit.sampling, admit.slot
        for tops, top in ((self._tops, sampling.logprobs), (self._prompt_tops, sampling.prompt_logprobs)):
            tops.pop(slot, None)
            if top is not None:
                tops[slot] = top

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
