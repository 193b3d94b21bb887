"""Qwen 3: Qwen 2 with a norm of each head's queries and keys, and biases only by attention_bias. (Yang 2025)"""

from octavo.worker.models import llama, qwen2
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family

FAMILY = Family({**qwen2.DEFAULTS, "head_dim": 128}, biases="by-field", head_norms=True, windows="upper")
ARCHITECTURE = Architecture(FAMILY, llama.parameters, llama.LlamaLayer)
