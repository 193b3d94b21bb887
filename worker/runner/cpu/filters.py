"""top_k and top_p over a vocabulary that ranks share: which entries stay, exactly, without gathering a logit.

Entries are ordered by likelihood, equal ones by id. A filter keeps the shortest run from the front whose weights reach
a target: top_k weighs each entry 1, top_p by its probability. Where the run ends is found digit by digit of the
entries' keys, from sums over the ranks of the weights by digit:

    key     the bits of |scaled logit|: ascending keys are descending likelihoods     31 bits, 8 a round
    mass    exp(scaled logit) in steps of 2^-43, a whole number: its sums are the same in any order
"""

import torch

from octavo.worker.distributed.collective import Gathering

_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_MASS = 2.0**43  # of the likeliest entry: 2^20 of them are still an int64


def keep_likeliest(
    scaled: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, collective: Gathering
) -> torch.Tensor:
    """A mask of scaled [rows, columns], at most 0 and 0 at the likeliest: the top_k likeliest, then of them the fewest
    whose probability reaches top_p; the likeliest always stays. top_k 0 and top_p 1 are off."""
    keys = scaled.abs().view(torch.int32)  # abs: 0 and -0 are equal
    kept = torch.ones_like(keys, dtype=torch.bool)
    rows = (top_k > 0).nonzero().squeeze(1)
    if rows.numel():
        entries = torch.ones_like(keys[rows], dtype=torch.int64)
        columns = collective.size * keys.shape[1]
        kept[rows] = _shortest_run(keys[rows], entries, top_k[rows].clamp(max=columns), collective)
    rows = (top_p < 1).nonzero().squeeze(1)
    if rows.numel():
        masses = scaled[rows].double().exp_().mul_(_MASS).round_().long().masked_fill_(~kept[rows], 0)
        total = collective.sum_(masses.sum(dim=-1))
        target = (total * top_p[rows].double()).ceil().long().clamp_(min=1)
        kept[rows] &= _shortest_run(keys[rows], masses, target, collective)
    return kept


def _shortest_run(
    keys: torch.Tensor, weights: torch.Tensor, target: torch.Tensor, collective: Gathering
) -> torch.Tensor:
    """A mask of the fewest first entries, by key and then by id, whose weights reach target [rows] over all ranks.

    Entries of one key weigh the same, or nothing; the weights of all reach the target.
    """
    rows, device = keys.shape[0], keys.device
    end = torch.zeros(rows, 1, dtype=torch.int32, device=device)  # the key that the run ends in, as far as known
    missing = target[:, None]
    for shift in (24, 16, 8, 0):
        digits = keys >> shift
        counted = weights.masked_fill(digits >> _DIGIT_BITS != end, 0)
        sums = torch.zeros(rows, _DIGITS, dtype=torch.int64, device=device)
        sums = collective.sum_(sums.scatter_add_(1, (digits & (_DIGITS - 1)).long(), counted))
        reached = sums.cumsum(dim=1)
        digit = (reached < missing).sum(dim=1, keepdim=True)
        missing = missing - (reached - sums).gather(1, digit)
        end = end << _DIGIT_BITS | digit.int()
    ties = (keys == end) & (weights > 0)
    counts = collective.gather(ties.sum(dim=1, keepdim=True))  # [ranks, rows, 1]
    each = sums.gather(1, digit) // counts.sum(dim=0)
    wanted = (missing + each - 1) // each - counts[: collective.rank].sum(dim=0)
    return (keys < end) | (ties & (ties.cumsum(dim=1) <= wanted))
