"""The architectures that are served, by the name that config.json has for them. No torch."""

from collections.abc import Mapping

from octavo.worker.models import llama, mistral, qwen2, qwen3
from octavo.worker.models.architecture import Architecture

ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": llama.ARCHITECTURE,
    "MistralForCausalLM": mistral.ARCHITECTURE,
    "Qwen2ForCausalLM": qwen2.ARCHITECTURE,
    "Qwen3ForCausalLM": qwen3.ARCHITECTURE,
}
