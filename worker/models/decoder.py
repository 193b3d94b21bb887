"""Embedding, layers around a residual stream, final norm, head. What a layer computes its architecture says
(registry.py); how its products are made, its linear method (linear_methods).

Letters as in kernels/paged.py. The model is a value with two functions, forward and logits; its KV pools are passed in.
A rank has part of it: the layers of its stage, and of them its heads, columns and vocabulary (sharding/shard.py).
(Shoeybi 2019)
"""

from collections.abc import Callable, Sequence

import torch

from octavo.kernels.backend import Backend, HeadNorms
from octavo.worker.distributed.collective import Collective, Norming, Overlapping
from octavo.worker.models.architecture import DecoderLayer
from octavo.worker.models.attention import Attention, Batch, LayerAttention
from octavo.worker.models.config.tensor_specs import Vector, layer_prefix
from octavo.worker.models.linear_methods.linear_method import Linear
from octavo.worker.models.linear_methods.registry import METHODS
from octavo.worker.models.overlap import Halves
from octavo.worker.models.registry import ARCHITECTURES
from octavo.worker.models.residual import Rows, SummedRows
from octavo.worker.models.weights import Weights, local_heads


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
        self._attention = Attention(
            config, self.heads, self.kv_heads, backend, context_length, weights.dtype, weights.device
        )
        self._embedding = weights.embedding() if shard.first else None
        self._layers: list[DecoderLayer] = []
        indices = shard.layers(config)
        windows = [window if window < context_length else 0 for window in config.windows]
        for place, index in enumerate(indices):
            self._layers.append(_load_layer(weights, backend, index, place, windows[index]))
            progress(100 * len(self._layers) // (len(indices) + 1))
        if shard.last:
            self._final_norm = weights.final_norm()
            shared = self._embedding if config.tied else None
            head = weights.head() if shared is None else shared
            self._head = METHODS[None].load({"weight": head}, backend)  # whatever the layers' method is
        self.windows = frozenset(windows[index] for index in indices)  # 0: of layers that see all
        progress(100)

    def forward(self, batch: Batch, pools: Sequence[torch.Tensor], x: torch.Tensor | None = None) -> torch.Tensor:
        """Write the batch's KV into `pools` (one a layer of the stage). The last stage returns the hidden states
        that the batch keeps, the others the states of all tokens, for the stage after. x: what the stage before
        returned, overwritten; None on the first."""
        attend = self._attention.of_pass(batch, pools, self.windows)
        residual = self._residual(self._embed(batch.ids) if x is None else x)
        for layer in self._layers:
            layer.layer(residual, attend)
        x = residual.whole()  # [t, hidden]
        return x if batch.kept is None or not self._shard.last else x.index_select(0, batch.kept)

    def _residual(self, x: torch.Tensor) -> Rows | Halves:
        """x: [t, hidden]."""
        eps = self._config.norm_eps
        if self._overlapping is not None and self._overlapping.overlaps(x):
            return Halves(x, eps, self._overlapping, self._collective.rank == 0, self._backend.rms_norm)
        return Rows(x, eps) if self._collective.size == 1 else SummedRows(x, eps, self._collective, self._norming)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Every rank has some rows of the table; ids of the others' give zeros, and the sum is the whole."""
        table = self._embedding
        assert table is not None, "only the first stage embeds"
        if self._collective.size == 1:
            return self._backend.embed(ids, table)
        return self._collective.sum_(self._backend.embed(ids, table, self._shard.rank * table.shape[0]))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary / ranks] of this rank, on the last stage; what pads the vocabulary is -inf."""
        logits = self._head.norm_linear(hidden, self._final_norm, self._config.norm_eps)
        existing = self._config.vocabulary - self._shard.rank * logits.shape[1]
        if existing < logits.shape[1]:
            logits[:, max(0, existing) :] = float("-inf")
        return logits


def _load_layer(weights: Weights, backend: Backend, index: int, place: int, window: int) -> DecoderLayer:
    """index: in the model; place: in the stage."""
    config, prefix = weights.config, layer_prefix(index)
    architecture, method = ARCHITECTURES[config.architecture], METHODS[config.linear_method]
    vectors, linears = dict[str, torch.Tensor](), dict[str, Linear]()
    for name, parameter in architecture.parameters(config).items():
        if isinstance(parameter, Vector):
            vectors[name] = weights.tensor(prefix + parameter.name)
        else:
            linears[name] = method.load(weights.linear(prefix, parameter), backend)
    norms = [vectors.pop(name, None) for name in ("q_norm", "k_norm")]
    head_norms = None if norms[0] is None or norms[1] is None else HeadNorms(norms[0], norms[1], config.norm_eps)
    return architecture.make_layer(LayerAttention(place, window, head_norms), **vectors, **linears)
