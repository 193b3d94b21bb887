"""Llama: embedding, layers of attention and SwiGLU around a residual stream, final norm, head. (Touvron 2023)

Letters as in kernels/paged.py. The model is a value with two functions, forward and logits; its KV pools are passed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from octavo.kernels.backend import Backend, Linear
from octavo.kernels.rope import inverse_frequencies, llama3_frequencies, rope_table
from octavo.worker.batch import Batch
from octavo.worker.models.config import ModelConfig, Rope
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import LayerWeights, Weights, local_heads


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: torch.Tensor
    qkv: Linear
    o: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Llama:
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
        dtype = self._embedding.dtype
        self._cos, self._sin = rope_table(rope_frequencies(config), context_length, dtype)
        self._layers: list[Layer] = []
        for index in range(config.layers):
            self._layers.append(_layer(weights.layer(index), backend))
            progress(100 * (index + 1) // (config.layers + 1))
        self._final_norm = weights.final_norm()
        self._head = backend.linear(self._embedding if config.tied else weights.head())
        progress(100)

    def forward(self, batch: Batch, pools: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write the batch's KV into `pools` (one a layer); return the normed hidden state of each row's last token."""
        kernels, eps = self._backend, self._config.norm_eps
        qkv_shape = (-1, self.heads + 2 * self.kv_heads, self._config.head_dim)
        cos, sin = (table.index_select(0, batch.positions) for table in (self._cos, self._sin))
        out = kernels.embed(batch.ids, self._embedding)  # [t, hidden]
        residual = torch.zeros_like(out)
        for layer, pool in zip(self._layers, pools, strict=True):
            normed, residual = kernels.add_rms_norm(out, residual, layer.input_norm, eps)
            qkv = layer.qkv(normed).view(qkv_shape)
            q = kernels.rope_and_write(qkv, cos, sin, pool, batch.paged.write_index)
            attended = layer.o(kernels.attention(q, pool, batch.paged))
            normed, residual = kernels.add_rms_norm(attended, residual, layer.post_norm, eps)
            out = layer.down(kernels.silu_mul(layer.gate_up(normed)))
        if batch.last is not None:
            out, residual = out.index_select(0, batch.last), residual.index_select(0, batch.last)
        return kernels.add_rms_norm(out, residual, self._final_norm, eps)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary] of this rank, in float32."""
        return self._head(hidden).float()


def _layer(weights: LayerWeights, backend: Backend) -> Layer:
    return Layer(
        input_norm=weights.input_norm,
        qkv=backend.linear(weights.qkv),
        o=backend.linear(weights.o),
        post_norm=weights.post_norm,
        gate_up=backend.linear(weights.gate_up),
        down=backend.linear(weights.down),
    )


def rope_frequencies(config: ModelConfig) -> torch.Tensor:
    rope: Rope = config.rope
    frequencies = inverse_frequencies(config.head_dim, rope.theta)
    if rope.kind == "llama3":
        low, high = rope.low_freq_factor, rope.high_freq_factor
        frequencies = llama3_frequencies(frequencies, rope.factor, low, high, rope.original_context)
    return frequencies
