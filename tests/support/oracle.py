"""What Hugging Face transformers says about a model folder: logits, and greedy continuations.

Continuations are generated many at a time, shorter prompts padded on their left. So that neither the padding nor the
KV cache of transformers has a say in them, each is then confirmed by one plain pass over the prompt and its answer.
Nothing is remembered between runs: an answer is of the model, the versions and the code at hand.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

_BATCH = 16


class Oracle:
    def __init__(self, folder: Path) -> None:
        # transformers is not typed as far as this
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        eos = self._model.generation_config.eos_token_id
        self._ends = {eos} if isinstance(eos, int) else set(eos or ())

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], last: int = 0) -> torch.Tensor:
        """[len(ids), vocabulary]; last: only of so many positions at the end."""
        logits: torch.Tensor = self._model(torch.tensor([ids]), logits_to_keep=last).logits[0]
        return logits

    @torch.inference_mode()
    def greedy(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """Continuations of prompts, without the EOS that ends them; prompts of like lengths run together."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), _BATCH):
            some = order[start : start + _BATCH]
            for index, row in zip(some, self._batch([prompts[index] for index in some], max_tokens), strict=True):
                end = next((place for place, token in enumerate(row) if token in self._ends), len(row))
                self._confirm(prompts[index], row[: end + 1])
                found[index] = row[:end]
        return [found[index] for index in range(len(prompts))]

    def _batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        longest = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        out = self._model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False, pad_token_id=0)
        rows: list[list[int]] = out[:, longest:].tolist()
        return rows

    def _confirm(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Each token of the answer is the likeliest one after all before it: that is what greedy means."""
        likeliest = self.logits([*prompt, *answer[:-1]], last=len(answer)).argmax(-1).tolist()
        assert likeliest == list(answer), f"transformers disagrees with itself about the prompt {list(prompt)[:8]}..."
