"""Sampling from a vocabulary of 128,256 in bfloat16: greedy, plain, and with each filter.

flat: normal logits, as of random weights; peaked: most of the probability on some tens of entries, as of a language
model.

    PYTHONPATH=src python benchmarks/kernels/sample.py
"""

import json

import torch
from replay import replayed_us, row, turns

from octavo.kernels.cuda.sampling.sample import sample
from octavo.kernels.cuda.step_layout.prepare import new_state, step_buffers

VOCABULARY = 128_256
KINDS: dict[str, dict[str, float]] = {
    "greedy": {},
    "plain": {"temperature": 0.8},
    "top_k 50": {"temperature": 0.8, "top_k": 50},
    "top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "top_k 20 top_p 0.95": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "min_p 0.05": {"temperature": 0.8, "min_p": 0.05},
}


def logits_of(shape: str, samples: int) -> torch.Tensor:
    logits = torch.randn(samples, VOCABULARY, device="cuda")
    if shape == "peaked":
        logits = 2.5 * logits + 6 * torch.randn(samples, VOCABULARY, device="cuda").relu().pow(3) / 20
    return logits.bfloat16()


def rows() -> list[dict[str, object]]:
    found = []
    for shape in ("flat", "peaked"):
        for samples in (1, 8, 64, 256):
            several = [logits_of(shape, samples) for _ in range(min(4, turns(2 * samples * VOCABULARY)))]
            for name, sampling in KINDS.items():
                state, step = new_state(samples, 8, 1, 0, "cuda"), step_buffers(1, samples, 1, "cuda")
                for field, value in sampling.items():
                    getattr(state, field).fill_(value)
                state.seeds.random_()
                step.header[3] = samples
                step.sample_slots.copy_(torch.arange(samples))
                calls = [
                    lambda logits=logits, step=step, state=state: sample(logits, step, state) for logits in several
                ]  # type: ignore[misc]
                us = replayed_us(calls, 12)
                found.append(row(f"sample {samples} {shape} {name}", us, 2 * samples * VOCABULARY))
    return found


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
