"""Which layers each stage of a pipeline has: runs of them, so that the most expensive stage costs the least. PURE.

    cost = numbers of weights that a step reads, a layer's three times        embedding: one row; head: all of it

A pipeline is for many requests. A layer then reads about as many keys and values as weights, and takes as long again
for the prompts that come beside (8B on an H200, 256 requests of 100 to 1,024 tokens in and out); the head does neither.
The head is the last stage's, the embedding the first one's. A stage has at least one layer.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from octavo.worker.models.config.model_config import ModelConfig

_TIMES = 3  # that a layer costs as much as its weights


def split(costs: Sequence[int], embedding: int, head: int, stages: int) -> tuple[range, ...]:
    """costs: of the layers. Among splits as good, one with even stages, and always the same. 1 <= stages <= layers."""
    assert 1 <= stages <= len(costs), f"{len(costs)} layers for {stages} stages"
    sums = [0, *accumulate(costs)]

    def cost(stage: int, first: int, end: int) -> int:
        return sums[end] - sums[first] + (embedding if stage == 0 else 0) + (head if stage == stages - 1 else 0)

    @cache
    def best(stage: int, end: int) -> tuple[int, int, tuple[int, ...]]:
        """Of the stages up to `stage` over layers below `end`: largest cost, sum of squares, where each begins."""
        found = []
        for first in range(stage, end) if stage else (0,):
            here = cost(stage, first, end)
            largest, squares, begins = best(stage - 1, first) if stage else (0, 0, ())
            found.append((max(largest, here), squares + here * here, (*begins, first)))
        return min(found)

    begins = best(stages - 1, len(costs))[2]
    return tuple(map(range, begins, (*begins[1:], len(costs))))


def stage_layers(config: ModelConfig, stages: int) -> tuple[range, ...]:
    """The layers of each stage of a model."""
    costs = [_TIMES * config.layer_weights()] * config.layers
    return split(costs, config.hidden, config.vocabulary * config.hidden, stages)
