"""What Hugging Face transformers says about a model folder: logits, and greedy continuations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

_BATCH = 8


class Oracle:
    def __init__(self, folder: Path) -> None:
        # transformers is not typed as far as this
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), vocabulary]"""
        logits: torch.Tensor = self._model(torch.tensor([ids])).logits[0]
        return logits

    @torch.inference_mode()
    def greedy(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """Continuations of prompts, without the EOS that ends them; prompts of like lengths run together."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), _BATCH):
            some = order[start : start + _BATCH]
            found |= zip(some, self._batch([prompts[index] for index in some], max_tokens), strict=True)
        return [found[index] for index in range(len(prompts))]

    def _batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        longest = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        out = self._model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False, pad_token_id=0)
        return [self._until_eos(row) for row in out[:, longest:].tolist()]

    def _until_eos(self, ids: list[int]) -> list[int]:
        eos = self._model.generation_config.eos_token_id
        ends = {eos} if isinstance(eos, int) else set(eos or ())
        return ids[: next((index for index, token in enumerate(ids) if token in ends), len(ids))]
