"""Mistral: Llama with a sliding window in every layer. (Jiang 2023)"""

from octavo.worker.models import llama
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family

DEFAULTS = {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}
ARCHITECTURE = Architecture(Family(DEFAULTS, windows="all"), llama.parameters, llama.LlamaLayer)
