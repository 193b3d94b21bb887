"""The architectures that are served, and how each departs from Llama. All run in one decoder (decoder.py). No torch.

Checkpoints name their architecture and leave to it what is written here; SmolLM2, for one, says LlamaForCausalLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """What config.json does not say. defaults: of absent fields. (transformers 5, models/*/configuration_*.py)

    biases    by-field: of q, k, v and o when attention_bias is true; qkv: always of q, k and v; none
    windows   which layers have the sliding window: none; all; upper: layers from max_window_layers on, if
              use_sliding_window is true, or the layers that layer_types names
    """

    defaults: Mapping[str, int] = field(default_factory=dict)
    biases: Literal["by-field", "qkv", "none"] = "none"
    head_norms: bool = False
    windows: Literal["none", "all", "upper"] = "none"


_QWEN = {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}

FAMILIES = {
    "LlamaForCausalLM": Family({"max_position_embeddings": 2048}, biases="by-field"),
    "MistralForCausalLM": Family(
        {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}, windows="all"
    ),
    "Qwen2ForCausalLM": Family(_QWEN, biases="qkv", windows="upper"),
    "Qwen3ForCausalLM": Family({**_QWEN, "head_dim": 128}, biases="by-field", head_norms=True, windows="upper"),
}
