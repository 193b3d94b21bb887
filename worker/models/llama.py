"""Llama: attention and SwiGLU around a residual stream, each with a norm before it. (Touvron 2023)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import LinearShape, Parameters, Part, Split, Vector

if TYPE_CHECKING:
    import torch

    from octavo.worker.models.attention import Attend, LayerAttention
    from octavo.worker.models.linear_methods.linear_method import Linear
    from octavo.worker.models.residual import Residual, Rows


def parameters(config: ModelConfig) -> Parameters:
    hidden, wide = config.hidden, config.intermediate
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    query_key_value = (
        Part("self_attn.q_proj", queries, Split.ROWS),
        Part("self_attn.k_proj", keys, Split.KV_ROWS),
        Part("self_attn.v_proj", keys, Split.KV_ROWS),
    )
    gate_up = (Part("mlp.gate_proj", wide, Split.ROWS), Part("mlp.up_proj", wide, Split.ROWS))
    norms = {"q_norm": Vector("self_attn.q_norm.weight", config.head_dim)}
    norms["k_norm"] = Vector("self_attn.k_norm.weight", config.head_dim)
    return {
        "input_norm": Vector("input_layernorm.weight", hidden),
        "qkv": LinearShape(query_key_value, hidden, config.qkv_bias),
        **(norms if config.head_norms else {}),
        "o": LinearShape((Part("self_attn.o_proj", hidden, Split.COLUMNS),), queries, config.o_bias),
        "post_norm": Vector("post_attention_layernorm.weight", hidden),
        "gate_up": LinearShape(gate_up, hidden),
        "down": LinearShape((Part("mlp.down_proj", hidden, Split.COLUMNS),), wide),
    }


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    attention: "LayerAttention"
    input_norm: "torch.Tensor"
    qkv: "Linear"
    o: "Linear"
    post_norm: "torch.Tensor"
    gate_up: "Linear"
    down: "Linear"

    def layer(self, x: "Residual", attend: "Attend") -> None:
        qkv = x.norm_linear(self.input_norm, self.qkv)
        x.add(attend(self.attention, qkv), self.o)
        x.each(self._mlp)

    def _mlp(self, rows: "Rows") -> None:
        rows.add(rows.norm_linear_silu_mul(self.post_norm, self.gate_up), self.down)


FAMILY = Family({"max_position_embeddings": 2048}, biases="by-field")
ARCHITECTURE = Architecture(FAMILY, parameters, LlamaLayer)
