"""How far bfloat16 on a GPU is from transformers: `python benchmarks/accuracy.py MODEL [--out FILE]`.

    agreement    of 100 prompts, how many greedy tokens of 64 are those of transformers in bfloat16, up to the first
                 that differs; and whether both gave the same text as far as it goes
    difference   mean difference of the log-probability of each token of a fixed text, against the same
    perplexity   of that text, against transformers in float32

The text is the licence of this repository.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import record
import torch
import transformers
from tokenizers import Tokenizer

from octavo.worker.cuda.runner import CudaRunner
from octavo.worker.device import RunnerConfig
from octavo.worker.request import Sampling
from octavo.worker.step import Admit, Blocks, Forward

sys.path.insert(0, str(record.ROOT / "tests"))

from support.engine import LocalEngine

PROMPTS, NEW, WINDOW = 100, 64, 1024


def text_ids(folder: Path) -> list[int]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: list[int] = tokenizer.encode((record.ROOT / "LICENSE").read_text()).ids
    return ids


def prompts(ids: list[int]) -> list[list[int]]:
    """Pieces of the text, of 8 to 107 tokens."""
    return [ids[(7 * index) % (len(ids) - 128) :][: 8 + index] for index in range(PROMPTS)]


def ours(runner: CudaRunner, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of ids[1:], each after all before it within its window."""
    parts = []
    for begin in range(0, len(ids), WINDOW):
        part = ids[begin : begin + WINDOW]
        blocks = tuple(range(-(-len(part) // 16)))
        forward = Forward((Admit(0, tuple(part), Sampling(), 0),), (Blocks(0, 0, blocks),), (0,), (0,), (len(part),))
        parts.append(_of(runner.logits(forward), part))
    return torch.cat(parts)


@torch.inference_mode()
def theirs(model: Any, ids: list[int]) -> torch.Tensor:  # transformers is not typed as far as this
    parts = []
    for begin in range(0, len(ids), WINDOW):
        part = ids[begin : begin + WINDOW]
        parts.append(_of(model(torch.tensor([part], device="cuda")).logits[0], part))
    return torch.cat(parts)


def _of(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
    following = torch.tensor(ids[1:], device=logits.device)
    return logits[:-1].double().log_softmax(-1).gather(1, following[:, None])[:, 0].cpu()


@torch.inference_mode()
def greedy(model: Any, prompt: list[int]) -> list[int]:
    given = torch.tensor([prompt], device="cuda")
    out = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
        pad_token_id=0,
    )  # fmt: skip
    ids: list[int] = out[0, len(prompt) :].tolist()
    return ids


def same(one: list[int], other: list[int]) -> int:
    """Leading ids that are equal."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def load(folder: Path, dtype: torch.dtype) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().to("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    ids = text_ids(args.model)
    asked = prompts(ids)
    runner = CudaRunner(RunnerConfig(args.model, dtype="bfloat16", max_requests=128, kv_cache_bytes=2 << 30))
    engine = LocalEngine(runner)
    engine.capture()
    answers = [answer.ids for answer in engine.generate(asked, NEW)]
    half, whole = load(args.model, torch.bfloat16), load(args.model, torch.float32)
    expected, exact = [greedy(half, prompt) for prompt in asked], [greedy(whole, prompt) for prompt in asked]
    mine, other, best = ours(runner, ids), theirs(half, ids), theirs(whole, ids)
    results = {
        "tokens_agreeing_before_the_first_difference": _share(answers, expected),
        "the_same_for_transformers_bf16_against_fp32": _share(expected, exact),
        "ours_bf16_against_transformers_fp32": _share(answers, exact),
        "mean_logprob_difference": (mine - other).mean().item(),
        "mean_absolute_logprob_difference": (mine - other).abs().mean().item(),
        "perplexity": math.exp(-mine.mean().item()),
        "perplexity_transformers_bf16": math.exp(-other.mean().item()),
        "perplexity_transformers_fp32": math.exp(-best.mean().item()),
    }
    for name, value in results.items():
        print(f"{name:46} {value:.6f}")
    if args.out is not None:
        made_on = record.machine(["torch", "transformers"]) | {"gpu": torch.cuda.get_device_name()}
        record.write(args.out, made_on, results)


def _share(answers: list[list[int]], expected: list[list[int]]) -> float:
    return sum(map(same, answers, expected)) / (len(answers) * NEW)


if __name__ == "__main__":
    main()
