"""The architectures that are served, each in the forms that its config has: what differs from a small Llama's."""

from typing import Any

WINDOW = 21  # no multiple of a block

UPPER = {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 24}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
MODELS: dict[str, dict[str, Any]] = {
    "llama 2": {"num_key_value_heads": 4},
    "llama 3": {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 500000.0},
    "llama with biases": {"attention_bias": True},
    "smollm2": {"rope_interleaved": False, "is_llama_config": True, "rope_theta": 100000},
    "mistral": {**MISTRAL, "sliding_window": None, "head_dim": 24},
    "mistral with a window": {**MISTRAL, "sliding_window": WINDOW},
    "qwen 2": {**QWEN2, "sliding_window": WINDOW, "use_sliding_window": False, "max_window_layers": 1},
    "qwen 2 with windows": {**QWEN2, **UPPER},
    "qwen 3": {**QWEN3, "attention_bias": False},
    "qwen 3 with biases and windows": {
        **QWEN3, **UPPER, "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"] * 2
    },
}  # fmt: skip
