"""How config.json of an architecture departs from Llama's. No torch.

Checkpoints name their architecture and leave to it what is written here; SmolLM2, for one, says LlamaForCausalLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Fields of which one value is served: the values that leave the result as it is, and why no others are.
Served = Mapping[str, tuple[tuple[object, ...], str]]

SILU: Served = {"hidden_act": (("silu", "swish"), "only silu is supported")}


@dataclass(frozen=True, slots=True)
class Family:
    """What config.json does not say. defaults: of absent fields. (transformers 5, models/*/configuration_*.py)

    biases    by-field: of q, k, v and o when attention_bias is true; qkv: always of q, k and v; none
    windows   which layers have the sliding window: none; all; upper: layers from max_window_layers on, if
              use_sliding_window is true, or the layers that layer_types names
    served    beside what folder/config.py says of every architecture
    """

    defaults: Mapping[str, int] = field(default_factory=dict)
    biases: Literal["by-field", "qkv", "none"] = "none"
    head_norms: bool = False
    windows: Literal["none", "all", "upper"] = "none"
    served: Served = field(default_factory=lambda: SILU)
