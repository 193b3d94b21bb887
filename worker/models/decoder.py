"""Embedding, layers of attention and SwiGLU around a residual stream, final norm, head. (Touvron 2023)

What folder/families.py lists differs in data alone: biases, norms of heads, windows of layers. Letters as in
kernels/paged.py. The model is a value with two functions, forward and logits; its KV pools are passed in. A rank has
part of it: the layers of its stage, and of them its heads, columns and vocabulary (sharding/shard.py). (Shoeybi 2019)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octavo.kernels.backend import Backend, HeadNorms
from octavo.kernels.rope import inverse_frequencies, llama3_frequencies
from octavo.worker.distributed.collective import Collective, Norming, Overlapping
from octavo.worker.models.folder.config import ModelConfig
from octavo.worker.models.folder.rope import Rope
from octavo.worker.models.overlap import Half
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


# The queries, keys and values of a layer [t, heads * head_dim] to what its heads make of them.
Attend = Callable[[Layer, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Of one pass. ids, positions: [t]. kept: [k] indices of the tokens whose hidden states are wanted of the last
    stage; None: of all."""

    ids: torch.Tensor
    positions: torch.Tensor
    paged: Any  # the backend's own
    kept: torch.Tensor | None


class Decoder:
    """The layers of one stage, of which this rank has its share; sums over the stage's ranks go by `collective`."""

    def __init__(
        self,
        weights: Weights,
        backend: Backend,
        context_length: int,
        collective: Collective,
        progress: Callable[[int], None],
    ) -> None:
        """progress: percent of the layers loaded."""
        config, shard = weights.config, weights.shard
        self._config, self._shard = config, shard
        self._backend, self._collective = backend, collective
        self._norming = collective if isinstance(collective, Norming) else None
        self._overlapping = collective if isinstance(collective, Overlapping) else None
        self.heads, self.kv_heads = local_heads(config, shard)
        self._rotary = backend.rotary(rope_frequencies(config), context_length, weights.dtype, weights.device)
        self._embedding = weights.embedding() if shard.first else None
        self._layers: list[Layer] = []
        indices = shard.layers(config)
        for index in indices:
            window = config.windows[index]
            seen = window if window < context_length else 0
            self._layers.append(_layer(weights.layer(index), backend, config.norm_eps, seen))
            progress(100 * len(self._layers) // (len(indices) + 1))
        if shard.last:
            self._final_norm = weights.final_norm()
            shared = self._embedding if config.tied else None
            self._head = backend.matrix(weights.head() if shared is None else shared)
        self.windows = frozenset(layer.window for layer in self._layers)  # 0: of layers that see all
        progress(100)

    def forward(self, batch: Batch, pools: Sequence[torch.Tensor], x: torch.Tensor | None = None) -> torch.Tensor:
        """Write the batch's KV into `pools` (one a layer of the stage). The last stage returns the hidden states
        that the batch keeps, the others the states of all tokens, for the stage after. x: what the stage before
        returned, overwritten; None on the first."""
        kernels = self._backend
        qkv_shape = (-1, self.heads + 2 * self.kv_heads, self._config.head_dim)
        rotary = kernels.rotary_at(self._rotary, batch.positions)
        seen = {0: batch.paged} | {size: kernels.windowed(batch.paged, size, pools[0]) for size in self.windows - {0}}

        def attend(layer: Layer, pool: torch.Tensor, qkv: torch.Tensor) -> torch.Tensor:
            q = kernels.rope_and_write(qkv.view(qkv_shape), rotary, pool, batch.paged, layer.head_norms)
            return kernels.attention(q, pool, seen[layer.window])

        if x is None:
            x = self._embed(batch.ids)  # [t, hidden]
        if self._overlapping is not None and self._overlapping.overlaps(x):
            x = self._pass_in_halves(x, pools, attend, self._overlapping)
        else:
            self._pass(x, pools, attend)
        return x if batch.kept is None or not self._shard.last else x.index_select(0, batch.kept)

    def _pass(self, x: torch.Tensor, pools: Sequence[torch.Tensor], attend: Attend) -> None:
        """x [t, hidden] through the layers, in place."""
        kernels, eps = self._backend, self._config.norm_eps
        normed = None  # x, where a sum over the ranks has normalised it for what comes next
        following = [layer.input_norm for layer in self._layers[1:]]
        for layer, pool, next_norm in zip(self._layers, pools, (*following, None), strict=True):
            if normed is None:
                qkv = kernels.norm_linear(x, layer.input_norm, eps, layer.qkv)
            else:
                qkv = kernels.linear(normed, layer.qkv)
            normed = self._add(attend(layer, pool, qkv), layer.o, x, layer.post_norm)
            if normed is None:
                wide = kernels.norm_linear_silu_mul(x, layer.post_norm, eps, layer.gate_up)
            else:
                wide = kernels.linear_silu_mul(normed, layer.gate_up)
            normed = self._add(wide, layer.down, x, next_norm)

    def _pass_in_halves(
        self, x: torch.Tensor, pools: Sequence[torch.Tensor], attend: Attend, collective: Overlapping
    ) -> torch.Tensor:
        """The same, returned: while the ranks add up one half of the rows, they compute with the other."""
        kernels, eps, first = self._backend, self._config.norm_eps, self._collective.rank == 0
        halves = [Half(rows, kernels, collective, first) for rows in x.tensor_split(2)]
        for layer, pool in zip(self._layers, pools, strict=True):
            qkv = [kernels.norm_linear(half.whole(), layer.input_norm, eps, layer.qkv) for half in halves]
            mixed = attend(layer, pool, torch.cat(qkv))
            for half, rows in zip(halves, mixed.tensor_split(2), strict=True):
                half.add(rows, layer.o)
            for half in halves:
                half.add(kernels.norm_linear_silu_mul(half.whole(), layer.post_norm, eps, layer.gate_up), layer.down)
        return torch.cat([half.whole() for half in halves])

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Every rank has some rows of the table; ids of the others' give zeros, and the sum is the whole."""
        table = self._embedding
        assert table is not None, "only the first stage embeds"
        if self._collective.size == 1:
            return self._backend.embed(ids, table)
        return self._collective.sum_(self._backend.embed(ids, table, self._shard.rank * table.shape[0]))

    def _add(
        self, inputs: torch.Tensor, matrix: Any, x: torch.Tensor, norm: torch.Tensor | None
    ) -> torch.Tensor | None:
        """x += inputs W^T, of which each rank has some of the columns of W. Then rms_norm(x) by `norm`, where that was
        made in passing."""
        if self._collective.size == 1:
            self._backend.linear_add(inputs, matrix, x)
            return None
        part = self._backend.linear(inputs, matrix)
        if norm is not None and self._norming is not None:
            return self._norming.add_sum_norm_(x, part, norm, self._config.norm_eps)
        self._collective.add_sum_(x, part)
        return None

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary / ranks] of this rank, on the last stage; what pads the vocabulary is -inf."""
        logits = self._backend.norm_linear(hidden, self._final_norm, self._config.norm_eps, self._head)
        existing = self._config.vocabulary - self._shard.rank * logits.shape[1]
        if existing < logits.shape[1]:
            logits[:, max(0, existing) :] = float("-inf")
        return logits


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
