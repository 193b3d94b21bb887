"""How far bfloat16 on a GPU is from transformers: `python benchmarks/accuracy.py MODEL [--out FILE]`.

    agreement    of 100 prompts, how many greedy tokens of 64 equal transformers', up to the first that differs
    difference   mean difference of the log-probability of each token of a fixed text, against transformers in bfloat16
    perplexity   of that text, against transformers in float32

The text is the licence of this repository. Transformers generates nothing: one pass over a prompt and our tokens says
what it would have chosen after each, and up to the first difference that is what it would have generated.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import record
import torch
import transformers
from record import Found
from tokenizers import Tokenizer

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cuda.runner import CudaRunner

sys.path.insert(0, str(record.ROOT / "tests"))

from support.worker.engine import LocalEngine

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
        forward = Forward(
            (Admit(0, tuple(part), SamplingParams(), 0),), (Blocks(0, 0, blocks),), (0,), (0,), (len(part),)
        )
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
def same(model: Any, prompt: list[int], answer: list[int]) -> int:
    """Leading tokens of the answer that the model would have chosen, too."""
    logits = model(torch.tensor([prompt + answer], device="cuda")).logits[0, len(prompt) - 1 : -1]
    chosen = logits.argmax(-1).tolist()
    return next((at for at, (a, b) in enumerate(zip(answer, chosen, strict=True)) if a != b), len(answer))


def greedy(folder: Path, dtype: str, asked: list[list[int]]) -> tuple[list[list[int]], CudaRunner]:
    """Our answers, and the runner that gave them."""
    runner = CudaRunner(RunnerConfig(folder, dtype=dtype, max_requests=128, kv_cache_bytes=2 << 30))
    engine = LocalEngine(runner)
    engine.capture()
    return [answer.ids for answer in engine.generate(asked, NEW)], runner


def load(folder: Path, dtype: torch.dtype) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().to("cuda")


def measure(folder: Path, found: Found) -> None:
    results: dict[str, float] = {}

    def tell(name: str, value: float) -> None:
        results[name] = value
        print(f"{name:46} {value:.6f}", flush=True)
        found.put(folder.name, results)

    ids = text_ids(folder)
    asked = prompts(ids)
    exact, _ = greedy(folder, "float32", asked)
    answers, runner = greedy(folder, "bfloat16", asked)
    half, whole = load(folder, torch.bfloat16), load(folder, torch.float32)
    for other, model in (("transformers_bf16", half), ("transformers_fp32", whole)):
        tell(f"agreement_bf16_with_{other}", agreement(model, asked, answers))
        tell(f"agreement_fp32_with_{other}", agreement(model, asked, exact))
    mine, other_half, best = ours(runner, ids), theirs(half, ids), theirs(whole, ids)
    tell("mean_logprob_difference", (mine - other_half).mean().item())
    tell("mean_absolute_logprob_difference", (mine - other_half).abs().mean().item())
    tell("perplexity", math.exp(-mine.mean().item()))
    tell("perplexity_transformers_bf16", math.exp(-other_half.mean().item()))
    tell("perplexity_transformers_fp32", math.exp(-best.mean().item()))


def agreement(model: Any, asked: list[list[int]], answers: list[list[int]]) -> float:
    return sum(same(model, *pair) for pair in zip(asked, answers, strict=True)) / (len(asked) * NEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    made_on = record.machine(["torch", "transformers"]) | {"gpu": torch.cuda.get_device_name()}
    with Found(args.out, made_on) as found:
        measure(args.model, found)


if __name__ == "__main__":
    main()
