"""The next token of each row: greedy, or drawn by the Gumbel trick from a counter-based generator.

    id = argmax over v of logits[v] / temperature + gumbel(seed, counter, v)

The noise depends on the request's seed, how many tokens it has sampled, and the vocabulary entry; on nothing else: a
request draws the same tokens alone, in any batch, and after preemption. top_k and top_p remove entries first.
"""

from dataclasses import dataclass

import torch

_GOLDEN = -7046029254386353131  # 2^64 / phi, odd, as a signed number (splitmix64; Steele 2014)
_MIX = (-4658895280553007687, -7723592293110705685)


@dataclass(frozen=True, slots=True)
class Draw:
    """Parameters of the sampled rows, each [rows]. temperature 0 is greedy; top_k 0 and top_p 1 are off.

    seeds: any 64 bits as int64; counters: tokens sampled before.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    seeds: torch.Tensor
    counters: torch.Tensor


def sample(logits: torch.Tensor, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, finite) of logits [rows, vocabulary], float32. finite is False where no token can be trusted."""
    best, ids = logits.max(dim=-1)  # a NaN wins max, an infinity too
    random = (draw.temperature > 0).nonzero().squeeze(1)
    if random.numel():
        some = Draw(*(getattr(draw, name)[random] for name in ("temperature", "top_k", "top_p", "seeds", "counters")))
        ids[random] = _draw(logits[random] - best[random, None], some)
    return ids, torch.isfinite(best)


def _draw(logits: torch.Tensor, draw: Draw) -> torch.Tensor:
    """logits: [rows, vocabulary], at most 0: dividing by a tiny temperature gives -inf at worst, never NaN."""
    scaled = logits / draw.temperature[:, None]
    filtered = ((draw.top_k > 0) & (draw.top_k < logits.shape[1])) | (draw.top_p < 1)
    rows = filtered.nonzero().squeeze(1)
    if rows.numel():
        scaled[rows] = _filter(scaled[rows], draw.top_k[rows], draw.top_p[rows])
    return (scaled + gumbel(draw.seeds, draw.counters, logits.shape[1])).argmax(dim=-1)


def _filter(scaled: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the top_k best, then of those the fewest whose probability reaches top_p; the best always stays."""
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scaled.shape[1])
    limit = torch.where(top_k > 0, top_k, scaled.shape[1])
    ordered = ordered.masked_fill(rank >= limit[:, None], float("-inf"))
    chances = ordered.double().softmax(dim=-1)
    before = chances.cumsum(dim=-1) - chances
    ordered = ordered.masked_fill((before >= top_p[:, None]) & (rank > 0), float("-inf"))
    return torch.empty_like(scaled).scatter_(1, order, ordered)


def gumbel(seeds: torch.Tensor, counters: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Gumbel noise [rows, vocabulary]: -log(-log(1 - v)) with v from 40 bits of a hash, so that its tail is exact."""
    keys = _mixed(_mixed(seeds) + counters * _GOLDEN)
    hashes = _mixed(keys[:, None] + torch.arange(1, vocabulary + 1) * _GOLDEN)
    uniform = ((hashes >> 24) & 0xFFFFFFFFFF).float().add_(0.5).mul_(2.0**-40).clamp_(max=1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser; int64 products wrap as unsigned ones do, shifts are made logical by a mask."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX[0]
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX[1]
    return x ^ ((x >> 31) & ((1 << 33) - 1))
