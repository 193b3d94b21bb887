"""Embedding, layers of attention and SwiGLU around a residual stream, final norm, head. (Touvron 2023)

What families.py lists differs in data alone: biases, norms of heads, windows of layers. Letters as in kernels/paged.py.
The model is a value with two functions, forward and logits; its KV pools are passed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octavo.kernels.backend import Backend, HeadNorms
from octavo.kernels.rope import inverse_frequencies, llama3_frequencies
from octavo.worker.batch import Batch
from octavo.worker.models.config import ModelConfig
from octavo.worker.models.rope import Rope
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import LayerWeights, Weights, local_heads


@dataclass(frozen=True, slots=True)
class Layer:
    """Norms are [hidden]; qkv, o, gate_up and down are the backend's matrices. window: tokens that it sees, 0: all."""

    input_norm: torch.Tensor
    qkv: Any
    head_norms: HeadNorms | None
    o: Any
    post_norm: torch.Tensor
    gate_up: Any
    down: Any
    window: int


class Decoder:
    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        backend: Backend,
        context_length: int,
        shard: Shard,
        progress: Callable[[int], None],
    ) -> None:
        """progress: percent of the layers loaded."""
        self._config = config
        self._backend = backend
        self.heads, self.kv_heads = local_heads(config, shard)
        self._embedding = weights.embedding()
        dtype, device = self._embedding.dtype, self._embedding.device
        self._rotary = backend.rotary(rope_frequencies(config), context_length, dtype, device)
        self._layers: list[Layer] = []
        for index, window in enumerate(config.windows):
            seen = window if window < context_length else 0
            self._layers.append(_layer(weights.layer(index), backend, config.norm_eps, seen))
            progress(100 * (index + 1) // (config.layers + 1))
        self._final_norm = weights.final_norm()
        self._head = backend.matrix(self._embedding if config.tied else weights.head())
        self._windows = {layer.window for layer in self._layers} - {0}
        progress(100)

    def forward(self, batch: Batch, pools: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write the batch's KV into `pools` (one a layer); return the hidden state of each row's last token."""
        kernels, eps = self._backend, self._config.norm_eps
        qkv_shape = (-1, self.heads + 2 * self.kv_heads, self._config.head_dim)
        rotary = kernels.rotary_at(self._rotary, batch.positions)
        seen = {0: batch.paged} | {size: kernels.windowed(batch.paged, size, pools[0]) for size in self._windows}
        x = kernels.embed(batch.ids, self._embedding)  # [t, hidden]
        for layer, pool in zip(self._layers, pools, strict=True):
            qkv = kernels.norm_linear(x, layer.input_norm, eps, layer.qkv).view(qkv_shape)
            q = kernels.rope_and_write(qkv, rotary, pool, batch.paged, layer.head_norms)
            kernels.linear_add(kernels.attention(q, pool, seen[layer.window]), layer.o, x)
            wide = kernels.norm_linear_silu_mul(x, layer.post_norm, eps, layer.gate_up)
            kernels.linear_add(wide, layer.down, x)
        return x if batch.last is None else x.index_select(0, batch.last)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary] of this rank."""
        return self._backend.norm_linear(hidden, self._final_norm, self._config.norm_eps, self._head)


def _layer(weights: LayerWeights, backend: Backend, eps: float, window: int) -> Layer:
    head_norms = None
    if weights.q_norm is not None and weights.k_norm is not None:
        head_norms = HeadNorms(weights.q_norm, weights.k_norm, eps)
    return Layer(
        input_norm=weights.input_norm,
        qkv=backend.matrix(weights.qkv, weights.qkv_bias),
        head_norms=head_norms,
        o=backend.matrix(weights.o, weights.o_bias),
        post_norm=weights.post_norm,
        gate_up=backend.matrix(weights.gate_up),
        down=backend.matrix(weights.down),
        window=window,
    )


def rope_frequencies(config: ModelConfig) -> torch.Tensor:
    rope: Rope = config.rope
    frequencies = inverse_frequencies(config.head_dim, rope.theta)
    if rope.kind == "llama3":
        low, high = rope.low_freq_factor, rope.high_freq_factor
        frequencies = llama3_frequencies(frequencies, rope.factor, low, high, rope.original_context)
    return frequencies
