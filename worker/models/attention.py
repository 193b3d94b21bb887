"""Attention of a model's layers: rotated queries and keys, heads that share keys (GQA), paged KV. (Ainslie 2023)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octavo.kernels.backend import Backend, HeadNorms
from octavo.kernels.rope import inverse_frequencies, llama3_frequencies
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.rope import Rope


@dataclass(frozen=True, slots=True)
class Batch:
    """Of one pass. ids, positions: [t]. kept: [k] indices of the tokens whose hidden states are wanted of the last
    stage; None: of all."""

    ids: torch.Tensor
    positions: torch.Tensor
    paged: Any  # the backend's own
    kept: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Of one layer. index: within the stage. window: tokens that it sees, 0: all."""

    index: int
    window: int
    head_norms: HeadNorms | None


# The queries, keys and values of a layer [t, (h + 2k) * d] to what its heads make of them [t, h * d].
Attend = Callable[[LayerAttention, torch.Tensor], torch.Tensor]


class Attention:
    """Of all layers of a stage; heads and kv_heads are this rank's."""

    def __init__(
        self, config: ModelConfig, heads: int, kv_heads: int, backend: Backend, context_length: int,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        self._backend = backend
        self._qkv_shape = (-1, heads + 2 * kv_heads, config.head_dim)
        self._rotary = backend.rotary(rope_frequencies(config), context_length, dtype, device)

    def of_pass(self, batch: Batch, pools: Sequence[torch.Tensor], windows: frozenset[int]) -> Attend:
        """It writes the KV of each layer into its pool. windows: that layers have."""
        kernels, qkv_shape, paged = self._backend, self._qkv_shape, batch.paged
        rotary = kernels.rotary_at(self._rotary, batch.positions)
        seen = {0: paged} | {size: kernels.windowed(paged, size, pools[0]) for size in windows - {0}}

        def attend(layer: LayerAttention, qkv: torch.Tensor) -> torch.Tensor:
            pool = pools[layer.index]
            q = kernels.rope_and_write(qkv.view(qkv_shape), rotary, pool, paged, layer.head_norms)
            return kernels.attention(q, pool, seen[layer.window])

        return attend


def rope_frequencies(config: ModelConfig) -> torch.Tensor:
    rope: Rope = config.rope
    frequencies = inverse_frequencies(config.head_dim, rope.theta)
    if rope.kind == "llama3":
        low, high = rope.low_freq_factor, rope.high_freq_factor
        frequencies = llama3_frequencies(frequencies, rope.factor, low, high, rope.original_context)
    return frequencies
