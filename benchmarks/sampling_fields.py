"""What sampling costs beside greedy decoding, on one GPU and on ranks that share a model.

    python benchmarks/sampling_fields.py 1b 8b [--tensor 2 [--group-only]] [--rows 1,64,256] [--fields greedy,top_p,...]

Ranks in processes of their own, by the rings of a real group, as they serve: one with one GPU, and with --tensor then
as many with a GPU each. Random weights (`--model FOLDER`: others), so logits are flat, which is the worst case of
filters. All rows decode together and set the same fields. ms a step: the time between the results of steps in which
all rows decode, the median of some runs. of greedy: tokens a second beside greedy rows' in the same call.
"""

import argparse
import math
import statistics
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from trace import Tracing, show

import record
import served
from rank_trace import RankTracer
from record import Found
from shapes import NAMES, checkpoint

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.output import Output
from octavo.worker.messages.step import Masks, Step
from octavo.worker.runner.base import DeviceRunner, Pending

sys.path.insert(0, str(record.ROOT / "tests"))

from support.worker.engine import LocalEngine
from support.worker.rank_processes import RankProcesses

PROMPT = 256
LOADED_S = 300.0
DRAWN = SamplingParams(temperature=0.8, seed=1)
GREEDY, MASK = "greedy", "mask"
FIELDS = {
    GREEDY: SamplingParams(),
    "temperature": DRAWN,
    "top_p": replace(DRAWN, top_p=0.9),
    "top_k": replace(DRAWN, top_k=50),
    "0.7/0.8/20": replace(DRAWN, temperature=0.7, top_p=0.8, top_k=20),
    "min_p": replace(DRAWN, min_p=0.05),
    "penalties": replace(DRAWN, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1),
    "logprobs": replace(DRAWN, logprobs=5),
    MASK: DRAWN,
    "logit_bias": replace(DRAWN, logit_bias=tuple((100 * token, 1.0) for token in range(300))),
    "allowed_token_ids": replace(DRAWN, allowed_token_ids=tuple(range(10_000))),
}
DEFAULT = ("greedy", "temperature", "top_p", "top_k", "0.7/0.8/20", "min_p", "penalties", "logprobs", MASK)


class Timed(LocalEngine):
    """Times the steps in which all rows decode. masked: every sample has a mask of which each id is allowed, ready at
    once: what finding masks takes is the core's."""

    def __init__(self, runner: DeviceRunner) -> None:
        super().__init__(runner)
        self.spans: list[float] = []
        self.masked = False
        self._rows = 0
        self._full: deque[bool] = deque()  # of the steps under way
        self._before: float | None = None
        self._bits = b"\xff" * (-(-runner.vocabulary // 32) * 4 * runner.max_requests)

    def step_ms(self, prompts: list[list[int]], tokens: int, params: SamplingParams) -> float:
        self.spans, self._rows = [], len(prompts)
        self.generate(prompts, tokens, [replace(params, seed=row) for row in range(len(prompts))])
        return 1e3 * statistics.mean(self.spans) if self.spans else math.nan

    def _give(self, step: Step) -> Pending:
        sample, counts = step.sample, step.forward.counts
        self._full.append(len(sample.rows) == len(counts) == sum(counts) == self._rows)
        if not self.masked or not sample.rows:
            return super()._give(step)
        entries = tuple(range(len(sample.rows)))
        masks = Masks(step.number, self._bits[: len(self._bits) // self._runner.max_requests * len(entries)])
        return self._runner.issue(replace(step, sample=replace(sample, masked=entries)), lambda number: masks)

    def _settle(self, pending: Pending) -> list[Output]:
        outputs, now, full = super()._settle(pending), time.perf_counter(), self._full.popleft()
        if full and self._before is not None:
            self.spans.append(now - self._before)
        self._before = now if full else None
        return outputs


@dataclass(frozen=True, slots=True)
class Row:
    """of_greedy: 1.0 is as fast as greedy rows in the same call."""

    shape: str
    tensor: int
    rows: int
    field: str
    ms_per_step: float
    tok_s: float
    of_greedy: float
    runs: list[float]


def prompts_of(rows: int, vocabulary: int) -> list[list[int]]:
    size = min(100_000, vocabulary)
    return [[(31 * index + 7 * row) % size for index in range(PROMPT)] for row in range(rows)]


def measure(
    shape: str,
    tensor: int,
    runner: DeviceRunner,
    args: argparse.Namespace,
    found: Found,
    tracing: Tracing | None,
) -> None:
    engine, measured = Timed(runner), list[Row]()
    engine.capture()
    for rows in args.rows:
        prompts, greedy = prompts_of(rows, runner.vocabulary), 0.0
        engine.step_ms(prompts, args.tokens, FIELDS[GREEDY])  # prompts are in the prefix cache then
        for field in args.fields:
            engine.masked = field == MASK
            engine.step_ms(prompts, 8, FIELDS[field])
            runs = [round(engine.step_ms(prompts, args.tokens, FIELDS[field]), 4) for _ in range(args.repeat)]
            ms = statistics.median(runs)
            greedy = greedy or ms
            row = Row(shape, tensor, rows, field, ms, round(1e3 * rows / ms, 1), round(greedy / ms, 4), runs)
            print(
                f"{shape:4}{tensor:7}{rows:6}  {field:20}{ms:9.3f} ms{row.tok_s:11,.0f} tok/s{row.of_greedy:8.1%}",
                flush=True,
            )
            found.put(f"{shape} {tensor} {rows} {field}", asdict(row))
            engine.masked = False
            measured.append(row)
    for row in measured if tracing is not None else ():  # a profiler that was on once costs something
        engine.masked = row.field == MASK
        prompts = prompts_of(row.rows, runner.vocabulary)
        work = partial(engine.step_ms, prompts, args.tokens, FIELDS[row.field])
        for trace in tracing(work, row.ms_per_step * args.tokens / 1e3):
            print(f"{shape} {row.field}, {row.rows} rows, tensor {tensor}")
            show(trace, 24)


def measure_shape(folder: Path, shape: str, args: argparse.Namespace, found: Found) -> None:
    """One GPU, then the ranks if args ask for them."""
    context = None if args.model else 4096
    for tensor in sorted({1, args.tensor} - ({1} if args.group_only else set())):
        tracer = RankTracer(tensor) if args.trace else None
        before = "" if tracer is None else tracer.code
        group = RankProcesses(folder, tensor, 1, LOADED_S, before, device="cuda", context_length=context)
        try:
            measure(shape, tensor, group, args, found, None if tracer is None else tracer.traced)
        finally:
            group.close()


def fields_of(text: str) -> list[str]:
    fields = text.split(",")
    if unknown := [field for field in fields if field not in FIELDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(FIELDS)}")
    return [GREEDY, *(field for field in fields if field != GREEDY)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of random weights: {', '.join(NAMES)}")
    parser.add_argument("--model", type=Path, help="a folder to measure instead")
    parser.add_argument("--tensor", type=int, default=1, help="then a group, each layer split over so many GPUs")
    parser.add_argument(
        "--rows", type=lambda text: [int(part) for part in text.split(",")], default=[1, 64, 256],
        help="that decode together (default: 1,64,256)",
    )  # fmt: skip
    parser.add_argument(
        "--fields", type=fields_of, default=list(DEFAULT), help=f"of {', '.join(FIELDS)} (default: {','.join(DEFAULT)})"
    )
    parser.add_argument("--tokens", type=int, default=96, help="of each answer (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts (default: %(default)s)")
    parser.add_argument("--group-only", action="store_true", help="without the rows of one GPU")
    parser.add_argument("--trace", action="store_true", help="more runs of each, and their kernels")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    if unknown := [shape for shape in args.shapes if shape not in NAMES]:
        parser.error(f"{unknown[0]!r} is no shape; there are {', '.join(NAMES)}")
    if not args.shapes and args.model is None:
        parser.error("give a SHAPE or --model")
    if args.group_only and args.tensor == 1:
        parser.error("--group-only: there is no group without --tensor")
    made_on = record.machine(["torch"]) | {"gpu": served.gpu()}
    print(f"{'':4}{'tensor':>7}{'rows':>6}  {'':20}{'a step':>12}{'':17}{'of greedy':>8}")
    with Found(args.out, made_on) as found:
        for shape in args.shapes or [args.model.name]:
            measure_shape(args.model or checkpoint(shape, args.models), shape, args, found)


if __name__ == "__main__":
    main()
