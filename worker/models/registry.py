"""Which code runs which architecture of config.json. checkpoint.py refuses the others before torch is imported."""

from octavo.worker.models.llama import Llama

MODELS: dict[str, type[Llama]] = {"LlamaForCausalLM": Llama}
