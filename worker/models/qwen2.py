"""Qwen 2 and 2.5: Llama with biases of q, k and v, and windows in the upper layers. (Yang 2024)"""

from octavo.worker.models import llama
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family

DEFAULTS = {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
ARCHITECTURE = Architecture(Family(DEFAULTS, biases="qkv", windows="upper"), llama.parameters, llama.LlamaLayer)
