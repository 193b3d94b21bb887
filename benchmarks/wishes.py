"""What sampling fields cost a GPU beside plain decoding: `python benchmarks/wishes.py 1b 8b [--requests N] [--out F]`.

Scheduler and runner in one process, random weights, prompts of 512 tokens. Each wish is that of all requests, and once
of one among plain ones. ms a step: whole seconds, prefill included, by steps; the median of three runs.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import record
import torch
from shapes import NAMES, checkpoint

from octavo.worker.cuda.runner import CudaRunner
from octavo.worker.device import Pending, RunnerConfig
from octavo.worker.request import Adjust, Sampling
from octavo.worker.step import Masks, Step

sys.path.insert(0, str(record.ROOT / "tests"))

from support.engine import LocalEngine

PROMPT = 512
PLAIN = Sampling(temperature=0.8, seed=1)
WISHES = {
    "plain": PLAIN,
    "min_p": replace(PLAIN, adjust=Adjust(min_p=0.05)),
    "penalties": replace(PLAIN, adjust=Adjust(presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1)),
    "logit_bias, 300": replace(PLAIN, adjust=Adjust(bias=tuple((100 * token, 1.0) for token in range(300)))),
    "allowed_token_ids, 10,000": replace(PLAIN, adjust=Adjust(allowed=tuple(range(10_000)))),
    "logprobs, 5": replace(PLAIN, logprobs=5),
    "logprobs, 20, penalties": replace(PLAIN, logprobs=20, adjust=Adjust(repetition_penalty=1.1)),
}
MASKS = "masks of a grammar"  # ready at once: what finding them takes is the core's


class Bound(LocalEngine):
    """The first `bound` samples of every step have a mask, of which every id is allowed."""

    bound = 0

    def _give(self, step: Step) -> Pending:
        if not self.bound:
            return super()._give(step)
        masked = tuple(range(len(step.sample.rows)))[: self.bound]
        row = b"\xff" * (-(-self._runner.vocabulary // 32) * 4)
        masks = Masks(step.number, row * len(masked))
        return self._runner.issue(replace(step, sample=replace(step.sample, masked=masked)), lambda number: masks)


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of a step when all requests wish, and when one does."""

    shape: str
    wish: str
    requests: int
    all_ms: float
    one_ms: float


def step_ms(engine: LocalEngine, samplings: list[Sampling], tokens: int) -> float:
    prompts = [[(31 * index + 7 * row) % 100_000 for index in range(PROMPT)] for row in range(len(samplings))]
    times = []
    for _ in range(4):  # the first warms up
        engine.forget()
        steps, begin = engine.steps, time.perf_counter()
        engine.generate(prompts, tokens, samplings)
        times.append(1e3 * (time.perf_counter() - begin) / (engine.steps - steps))
    return round(statistics.median(times[1:]), 3)


def rows(shape: str, runner: CudaRunner, requests: int, tokens: int) -> list[Row]:
    engine = Bound(runner)
    engine.capture()
    found = []
    for name, wish in WISHES.items():
        each = [step_ms(engine, [wish] * count + [PLAIN] * (requests - count), tokens) for count in (requests, 1)]
        found.append(_told(Row(shape, name, requests, *each)))
    each = []
    for engine.bound in (requests, 1):
        each.append(step_ms(engine, [PLAIN] * requests, tokens))
    return [*found, _told(Row(shape, MASKS, requests, *each))]


def _told(row: Row) -> Row:
    print(f"{row.shape:4}{row.wish:28}{row.requests:5} requests{row.all_ms:9.3f} ms{row.one_ms:9.3f} ms", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", choices=NAMES)
    parser.add_argument("--requests", type=int, default=64, help="that decode together (default 64)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default 128)")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache/octavo/bench", help="random checkpoints")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    found: list[Row] = []
    print(f"{'':46}{'all wish':>12}{'one does':>12}")
    for shape in args.shapes:
        runner = CudaRunner(RunnerConfig(checkpoint(shape, args.models), context_length=8192))
        found += rows(shape, runner, args.requests, args.tokens)
        del runner
        torch.cuda.empty_cache()
    if args.out is not None:
        made_on = record.machine(["torch"]) | {"gpu": torch.cuda.get_device_name()}
        record.write(args.out, made_on, [{name: getattr(row, name) for name in Row.__slots__} for row in found])


if __name__ == "__main__":
    main()
