"""What Hugging Face transformers says about a model folder: logits, and whether a text is its greedy continuation.

A continuation is greedy when each of its tokens is the likeliest one after all before it: one plain pass over both
shows that, so neither padding nor the KV cache of transformers has a say in it. Logits of a whole text are remembered,
as several tests ask for them; nothing is between runs: an answer is of the model, the versions and the code at hand.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


class Oracle:
    def __init__(self, folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        from transformers import AutoModelForCausalLM  # a second, which GPU tests that are only collected do not need

        # transformers is not typed as far as this
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().to(device)
        self._device = device
        eos = self._model.generation_config.eos_token_id
        self._ends = {eos} if isinstance(eos, int) else set(eos or ())
        self._whole: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, ids: Sequence[int], last: int = 0) -> torch.Tensor:
        """[len(ids), vocabulary] float32 on the host; last: only of so many positions at the end."""
        if last:
            return self._pass(ids, last)
        key = tuple(ids)
        if key not in self._whole:
            self._whole[key] = self._pass(ids)
        return self._whole[key]

    @torch.inference_mode()
    def _pass(self, ids: Sequence[int], last: int = 0) -> torch.Tensor:
        logits: torch.Tensor = self._model(torch.tensor([ids], device=self._device), logits_to_keep=last).logits[0]
        return logits.float().cpu()

    def confirm(self, prompt: Sequence[int], answer: Sequence[int], max_tokens: int) -> None:
        """Fails unless `answer` is what greedy decoding gives: max_tokens of them, or fewer and then an EOS, which it
        does not hold."""
        likeliest = self.logits([*prompt, *answer], last=len(answer) + 1).argmax(-1).tolist()
        where = f"the prompt {list(prompt)[:8]}..."
        assert likeliest[:-1] == list(answer), f"transformers continues otherwise after {where}"
        assert not self._ends.intersection(answer), f"the answer goes on after its end, to {where}"
        assert len(answer) == max_tokens or likeliest[-1] in self._ends, f"the answer ends too soon, to {where}"
