"""What sampling fields cost a GPU beside plain decoding.

    python benchmarks/sampling_fields.py 1b 8b [--requests N] [--out FILE]

Scheduler and runner in one process, random weights (`--model FOLDER`: others), prompts of 512 tokens. Each field is set
by all requests, and once by one among plain ones. ms a step: whole seconds, prefill included, by steps; the median of
three runs.
"""

import argparse
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import record
import served
import torch
from record import Found
from shapes import NAMES, checkpoint

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Masks, Step
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, Pending, RunnerConfig

sys.path.insert(0, str(record.ROOT / "tests"))

from support.worker.engine import LocalEngine

PROMPT = 512
PLAIN = SamplingParams(temperature=0.8, seed=1)
FIELDS = {
    "plain": PLAIN,
    "min_p": replace(PLAIN, min_p=0.05),
    "penalties": replace(PLAIN, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1),
    "logit_bias, 300": replace(PLAIN, logit_bias=tuple((100 * token, 1.0) for token in range(300))),
    "allowed_token_ids, 10,000": replace(PLAIN, allowed_token_ids=tuple(range(10_000))),
    "logprobs, 5": replace(PLAIN, logprobs=5),
    "logprobs, 20, penalties": replace(PLAIN, logprobs=20, repetition_penalty=1.1),
}
MASKS = "masks of a grammar"  # ready at once: what finding them takes is the core's


class Bound(LocalEngine):
    """The first `bound` samples of every step have a mask, of which every id is allowed."""

    bound = 0

    @property
    def vocabulary(self) -> int:
        return self._runner.vocabulary

    def _give(self, step: Step) -> Pending:
        if not self.bound:
            return super()._give(step)
        masked = tuple(range(len(step.sample.rows)))[: self.bound]
        row = b"\xff" * (-(-self._runner.vocabulary // 32) * 4)
        masks = Masks(step.number, row * len(masked))
        return self._runner.issue(replace(step, sample=replace(step.sample, masked=masked)), lambda number: masks)


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of a step when all requests set the field, and when one does."""

    shape: str
    field: str
    requests: int
    all_ms: float
    one_ms: float


def step_ms(engine: "Bound", samplings: list[SamplingParams], tokens: int) -> float:
    size = min(100_000, engine.vocabulary)
    prompts = [[(31 * index + 7 * row) % size for index in range(PROMPT)] for row in range(len(samplings))]
    times = []
    for _ in range(4):  # the first warms up
        engine.forget()
        steps, begin = engine.steps, time.perf_counter()
        engine.generate(prompts, tokens, samplings)
        times.append(1e3 * (time.perf_counter() - begin) / (engine.steps - steps))
    return round(statistics.median(times[1:]), 3)


def measure(shape: str, runner: DeviceRunner, requests: int, tokens: int, found: Found) -> None:
    engine = Bound(runner)
    engine.capture()
    for name, params in FIELDS.items():
        each = [step_ms(engine, [params] * count + [PLAIN] * (requests - count), tokens) for count in (requests, 1)]
        _tell(Row(shape, name, requests, *each), found)
    each = []
    for engine.bound in (requests, 1):
        each.append(step_ms(engine, [PLAIN] * requests, tokens))
    _tell(Row(shape, MASKS, requests, *each), found)


def _tell(row: Row, found: Found) -> None:
    print(f"{row.shape:4}{row.field:28}{row.requests:5} requests{row.all_ms:9.3f} ms{row.one_ms:9.3f} ms", flush=True)
    found.put(f"{row.shape} {row.field}", asdict(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of random weights: {', '.join(NAMES)}")
    parser.add_argument("--model", type=Path, help="a folder to measure instead")
    parser.add_argument("--requests", type=int, default=64, help="that decode together (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    if unknown := [shape for shape in args.shapes if shape not in NAMES]:
        parser.error(f"{unknown[0]!r} is no shape; there are {', '.join(NAMES)}")
    if not args.shapes and args.model is None:
        parser.error("give a SHAPE or --model")
    made_on = record.machine(["torch"]) | {"gpu": served.gpu()}
    print(f"{'':46}{'all':>12}{'one':>12}")
    with Found(args.out, made_on) as found:
        for shape in args.shapes or [args.model.name]:
            folder = args.model or checkpoint(shape, args.models)
            runner = open_runner(RunnerConfig(folder, context_length=None if args.model else 8192))
            measure(shape, runner, args.requests, args.tokens, found)
            del runner
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
