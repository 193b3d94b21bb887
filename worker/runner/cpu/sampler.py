"""The next token of each row: greedy, or drawn by the Gumbel trick from a counter-based generator.

    id = argmax over v of logits[v] / temperature + gumbel(seed, counter, v)

The noise depends on the request's seed, how many tokens it has sampled, and the vocabulary entry; on nothing else: a
request draws the same tokens alone, in any batch, after preemption, and however many ranks share the vocabulary.
min_p, top_k and top_p remove entries first (filters.py). Every rank finds the same ids.
"""

from dataclasses import dataclass

import torch

from octavo.worker.distributed.collective import ALONE, Gathering
from octavo.worker.runner.cpu.filters import keep_likeliest

_GOLDEN = -7046029254386353131  # 2^64 / phi, odd, as a signed number (splitmix64; Steele 2014)
_MIX = (-4658895280553007687, -7723592293110705685)


@dataclass(frozen=True, slots=True)
class Draw:
    """Parameters of the sampled rows, each [rows]. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off.

    seeds: any 64 bits as int64; counters: tokens sampled before. min_p: None when it is off in every row.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    seeds: torch.Tensor
    counters: torch.Tensor
    min_p: torch.Tensor | None = None

    def of(self, rows: torch.Tensor) -> "Draw":
        """The parameters of some rows."""
        min_p = None if self.min_p is None else self.min_p[rows]
        return Draw(
            self.temperature[rows], self.top_k[rows], self.top_p[rows], self.seeds[rows], self.counters[rows], min_p
        )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """This rank's columns of the logits: from id `first` on, of `size` ids in all; more only pad."""

    size: int
    first: int = 0
    collective: Gathering = ALONE


def sample(logits: torch.Tensor, draw: Draw, vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, finite) of logits [rows, columns], float32, -inf where they pad. finite is False where no token can be
    trusted."""
    best, ids = _best(logits, vocabulary)
    finite = torch.isfinite(best)
    random = ((draw.temperature > 0) & finite).nonzero().squeeze(1)
    if random.numel():
        ids[random] = _draw(logits[random] - best[random, None], draw.of(random), vocabulary)
    return ids, finite


def _draw(logits: torch.Tensor, draw: Draw, vocabulary: Vocabulary) -> torch.Tensor:
    """logits: [rows, columns], at most 0: dividing by a tiny temperature gives -inf at worst, never NaN."""
    scaled = logits / draw.temperature[:, None]
    if draw.min_p is not None:  # the likeliest entry has 0: no other rank need be asked
        scaled = scaled.masked_fill(scaled < draw.min_p.log()[:, None], float("-inf"))
    filtered = ((draw.top_k > 0) & (draw.top_k < vocabulary.size)) | (draw.top_p < 1)
    rows = filtered.nonzero().squeeze(1)
    if rows.numel():
        kept = keep_likeliest(scaled[rows], draw.top_k[rows], draw.top_p[rows], vocabulary.collective)
        scaled[rows] = scaled[rows].masked_fill_(~kept, float("-inf"))
    noise = gumbel(draw.seeds, draw.counters, scaled.shape[1], vocabulary.first)
    return _best(scaled.add_(noise), vocabulary)[1]


def _best(values: torch.Tensor, vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest value of each row over all ranks, and its lowest id. A NaN wins, an infinity too."""
    best, ids = values.max(dim=-1)
    if vocabulary.collective.size == 1:
        return best, ids
    pairs = torch.stack((best.double(), (ids + vocabulary.first).double()))
    values, ids = vocabulary.collective.gather(pairs).unbind(1)  # [ranks, rows]; ids are exact below 2^53
    best, rank = values.max(dim=0)
    return best.float(), ids.gather(0, rank[None])[0].long()


def gumbel(seeds: torch.Tensor, counters: torch.Tensor, columns: int, first: int = 0) -> torch.Tensor:
    """Gumbel noise [rows, columns] of ids from `first` on: -log(-log(1 - v)) with v from 40 bits of a hash, so that its
    tail is exact."""
    keys = _mixed(_mixed(seeds) + counters * _GOLDEN)
    ids = torch.arange(first + 1, first + columns + 1, device=seeds.device)
    hashes = _mixed(keys[:, None] + ids * _GOLDEN)
    uniform = ((hashes >> 24) & 0xFFFFFFFFFF).float().add_(0.5).mul_(2.0**-40).clamp_(max=1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser; int64 products wrap as unsigned ones do, shifts are made logical by a mask."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX[0]
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX[1]
    return x ^ ((x >> 31) & ((1 << 33) - 1))
