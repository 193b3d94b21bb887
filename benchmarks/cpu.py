"""Our engine against transformers `generate` on SmolLM2, on CPU: `python benchmarks/cpu.py [--threads N] [--out FILE]`.

    one       1 request: tokens a second
    sixteen   16 requests together, against generate with a batch of 16

Same process, threads, float32, prompts and greedy output. The two take turns, and the best turn of each counts: on a
machine shared with others the slower turns measure the others.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm

from octavo import bundled
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.worker.engine import LocalEngine  # noqa: E402

PROMPT_TOKENS, NEW_TOKENS = 32, 64
WANTED = 1.3


def prompts(count: int) -> list[list[int]]:
    """Distinct, of equal length, so that transformers needs no padding."""
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(100, 49_000, (count, PROMPT_TOKENS), generator=generator)
    return [row.tolist() for row in ids]


def ours(runner: Runner, ids: list[list[int]]) -> None:
    answers = LocalEngine(runner).generate(ids, NEW_TOKENS)
    assert all(len(answer.ids) == NEW_TOKENS for answer in answers)


@torch.inference_mode()
def theirs(model: Any, ids: list[list[int]]) -> None:  # transformers is not typed as far as this
    given = torch.tensor(ids)
    out = model.generate(
        given,
        attention_mask=torch.ones_like(given),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=2,
    )
    assert out.shape[1] == PROMPT_TOKENS + NEW_TOKENS


def best(calls: list[Callable[[], None]], turns: int, bar: "tqdm[Any]") -> list[float]:
    """Least seconds of each call, taking turns."""
    found = [float("inf")] * len(calls)
    for _ in range(turns):
        for index, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            found[index] = min(found[index], time.perf_counter() - begin)
            bar.update()
    return found


def measure(threads: int, turns: int) -> dict[str, dict[str, float]]:
    folder = bundled.ensure(bundled.NAMES[0])
    runner = Runner(RunnerConfig(folder, max_requests=16, kv_cache_bytes=256 << 20, threads=threads))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    results = {}
    with tqdm(total=4 * turns, unit="run", disable=not sys.stderr.isatty()) as bar:
        for name, count in (("one", 1), ("sixteen", 16)):
            ids = prompts(count)
            calls: list[Callable[[], None]] = [lambda ids=ids: ours(runner, ids), lambda ids=ids: theirs(model, ids)]
            seconds, other = best(calls, turns, bar)
            tokens = count * NEW_TOKENS
            results[name] = {
                "octavo_tokens_per_s": round(tokens / seconds, 1),
                "transformers_tokens_per_s": round(tokens / other, 1),
                "ratio": round(other / seconds, 2),
            }
    return results


def machine(threads: int) -> dict[str, Any]:
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        "cpu": names[0] if names else platform.processor(),
        "cpus": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "load_before": os.getloadavg()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--turns", type=int, default=5, help="runs of each side (default 5)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "cpu.json")
    args = parser.parse_args()
    about = machine(args.threads)
    results = measure(args.threads, args.turns)
    for name, row in results.items():
        print(
            f"{name:8} octavo {row['octavo_tokens_per_s']:7} tok/s"
            f"   transformers {row['transformers_tokens_per_s']:7} tok/s   ratio {row['ratio']:.2f} (wanted {WANTED})"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
