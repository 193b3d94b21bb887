"""The shape of a decoder, as folder/config.py reads it from config.json. No torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.worker.models.config.rope import Rope
from octavo.worker.models.config.tensor_specs import EMBEDDING, FINAL_NORM, HEAD, Split, TensorSpec, layer_prefix


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder.

    tied: the head is the embedding. qkv_bias, o_bias: of attention's projections. head_norms: RMSNorm of each q and k.
    windows: how many tokens each layer sees, 0: all. dtype: of the checkpoint (checkpoint.py). linear_method: by its
    name in linear_methods/registry.py. layer_tensors: of one layer, by name.
    """

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    context_length: int
    tied: bool
    qkv_bias: bool
    o_bias: bool
    head_norms: bool
    windows: tuple[int, ...]
    dtype: str
    rope: Rope
    linear_method: str | None
    layer_tensors: Mapping[str, TensorSpec]

    def tensors(self) -> dict[str, TensorSpec]:
        """What a checkpoint of it must hold, and nothing else may be in it."""
        table = TensorSpec((self.vocabulary, self.hidden), Split.VOCABULARY)
        specs = {EMBEDDING: table}
        for index in range(self.layers):
            prefix = layer_prefix(index)
            specs |= {prefix + name: spec for name, spec in self.layer_tensors.items()}
        specs[FINAL_NORM] = TensorSpec((self.hidden,), Split.WHOLE)
        if not self.tied:
            specs[HEAD] = table
        return specs

    def layer_weights(self) -> int:
        """Numbers of a layer's weights; norms and biases are too few to count."""
        return sum(math.prod(spec.shape) for spec in self.layer_tensors.values() if len(spec.shape) > 1)
