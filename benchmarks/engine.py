"""The engine alone, on random weights: `python benchmarks/engine.py 1b 8b [--workloads decode1,...] [--out FILE]`.

Scheduler and runner in one process, as the leader's core and a rank do it together; greedy, token ids, a cold prefix
cache in each repetition. With --tensor or --pipeline a group of processes, a GPU each, by the rings of a real one; the
rows of one GPU come first, unless with --group-only. out tok/s = output tokens / whole seconds, prefill included;
`prefill` counts the prompts'. The limit is what the device cannot beat (limits.py): the prompts' FLOPs, then of each
step the longer of the time that its weights' bytes and its products' FLOPs take, and every byte of KV read once.
`wanted` and vLLM's figures are an H100's; `here` is `wanted` times how much higher this card's limit is.
"""

import argparse
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from trace import Tracing, show, traced

import record
import torch
from limits import CARDS, H100, Card, limit
from rank_trace import RankTracer
from record import Found
from shapes import NAMES, checkpoint
from workloads import NAMES as WORKLOADS
from workloads import USUAL, Request, workload

from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.folder.config import read_config
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cuda.runner import CudaRunner
from octavo.worker.topology import Layout

sys.path.insert(0, str(record.ROOT / "tests"))

from support.worker.engine import LocalEngine
from support.worker.rank_processes import RankProcesses

WANTED = {  # tokens a second that we hold ourselves to, and what vLLM 0.25.0 gives, on an H100 80GB
    "1b": {
        "decode1": (870, 440), "decode8": (6400, 3128), "decode64": (27000, 13475), "decode256": (44000, 21892),
        "mixed256": (40000, 20360), "prefill": (250_000, 219_000), "prefix": (29000, 14495),
    },
    "8b": {
        "decode1": (178, 151), "decode8": (1330, 1160), "decode64": (6000, 5393), "decode256": (9900, 8847),
        "mixed256": (9300, 8487), "prefill": (40_500, 39_800), "prefix": (8500, 5360),
    },
}  # fmt: skip

# Of groups, by (tensor, pipeline): as above on H200s, and how many times one GPU of the same call.
GROUPS_WANTED = {
    "8b": {
        (2, 1): {"decode1": (400, 287), "mixed256": (18_500, 16_586)},
        (1, 2): {"mixed256": (16_500, 0), "prefill": (77_000, 0)},
    }
}
TIMES_WANTED = {"8b": {(1, 2): {"mixed256": 1.35, "prefill": 1.8}}}


@dataclass(frozen=True, slots=True)
class Row:
    """tok_s: output tokens a second, of `prefill` input tokens. of_limit: 1.0 is what the devices cannot beat. wanted,
    vllm: of an H100, of groups of H200s, 0 where nothing is said; here: wanted, for this card. times: as many as one
    GPU of the same call."""

    shape: str
    workload: str
    seconds: float
    tok_s: float
    ms_per_step: float
    of_limit: float
    wanted: int
    here: int
    vllm: int
    runs: list[float]
    idle: float | None = None  # share of a traced run in which the device did nothing, of a group's idlest
    tensor: int = 1
    pipeline: int = 1
    times: float | None = None


def card() -> Card:
    """This device's. Raises SystemExit for one whose rates are not in CARDS."""
    name = torch.cuda.get_device_name()
    found = [card for part, card in CARDS.items() if part in name]
    if not found:
        sys.exit(f"engine.py: the limits of {name} are not known; measure a copy and a product, and add them to CARDS")
    return found[0]


def measure(
    shape: str,
    runner: CudaRunner | RankProcesses,
    folder: Path,
    args: argparse.Namespace,
    found: Found,
    tracing: Tracing | None,
) -> list[Row]:
    split = runner.layout if isinstance(runner, RankProcesses) else Layout()
    engine = LocalEngine(runner, stages=split.pipeline)
    engine.capture()
    for name in ("decode8", "prefill"):  # to warm up: what steps take is learned, memory for large ones is taken
        run(engine, workload(name)[:8])
    model = read_config(folder)[0]
    rows = []
    for name in args.workloads.split(","):
        requests = workload(name)
        runs, steps = [], engine.steps
        for _ in range(args.repeat):
            runs.append(round(run(engine, requests), 4))
        row = _row(shape, name, requests, runs, (engine.steps - steps) // args.repeat, model)
        if split.ranks > 1:
            row = _of_group(row, split)
        print(_line(row), flush=True)
        rows.append(_kept(found, row))
    return rows if tracing is None else [_traced(row, engine, tracing, found) for row in rows]


def _traced(row: Row, engine: LocalEngine, tracing: Tracing, found: Found) -> Row:
    """After all was measured: a profiler that was on once costs something."""
    traces = tracing(lambda: run(engine, workload(row.workload)), row.seconds)
    for trace in traces:
        print(f"{row.shape} {row.workload}, tensor {row.tensor}, pipeline {row.pipeline}")
        show(trace)
    return _kept(found, replace(row, idle=round(max(trace.idle for trace in traces), 4)))


def _kept(found: Found, row: Row) -> Row:
    found.put(f"{row.shape} {row.workload} {row.tensor} {row.pipeline}", asdict(row))
    return row


def run(engine: LocalEngine, requests: list[Request]) -> float:
    """Seconds from the first request to the last token, with a cold prefix cache."""
    engine.forget()
    begin = time.perf_counter()
    answers = engine.run([request.prompt for request in requests], [one.new_tokens for one in requests])
    seconds = time.perf_counter() - begin
    assert [len(answer.ids) for answer in answers] == [one.new_tokens for one in requests]
    return seconds


def context_of(workloads: list[str]) -> int:
    """Tokens that the longest request of the workloads has, and room to warm up."""
    lengths = (len(one.prompt) + one.new_tokens for name in workloads for one in workload(name))
    return max(8192, *lengths)


def _row(shape: str, name: str, requests: list[Request], runs: list[float], steps: int, model: ModelConfig) -> Row:
    seconds = statistics.median(runs)
    tokens = sum(len(one.prompt) if name == "prefill" else one.new_tokens for one in requests)
    wanted, vllm = WANTED.get(shape, {}).get(name, (0, 0))
    shared = len(requests[0].prompt) - 128 if name == "prefix" else 0
    here, on_h100 = (limit(model, requests, shared, one).seconds for one in (card(), H100))
    return Row(
        shape, name, seconds, round(tokens / seconds, 1), round(1e3 * seconds / steps, 3), round(here / seconds, 3),
        wanted, round(wanted * on_h100 / here), vllm, runs,
    )  # fmt: skip


def _of_group(row: Row, split: Layout) -> Row:
    shape = split.tensor, split.pipeline
    wanted, vllm = GROUPS_WANTED.get(row.shape, {}).get(shape, {}).get(row.workload, (0, 0))
    return replace(
        row, tensor=split.tensor, pipeline=split.pipeline, of_limit=round(row.of_limit / split.ranks, 3), wanted=wanted,
        here=wanted, vllm=vllm,
    )  # fmt: skip


def compared(groups: list[Row], alone: list[Row], found: Found) -> None:
    """Say how many times one GPU's figure each is."""
    ones = {row.workload: row.tok_s for row in alone}
    for row in groups:
        times = round(row.tok_s / ones[row.workload], 2)
        least = TIMES_WANTED.get(row.shape, {}).get((row.tensor, row.pipeline), {}).get(row.workload)
        verdict = "" if least is None else f" (wanted: {least}{'' if times >= least else ', below'})"
        print(f"{row.shape:6}{row.workload:11}{times:.2f} times one GPU{verdict}", flush=True)
        _kept(found, replace(row, times=times))


HEADER = f"{'model':6}{'workload':11}{'s':>9}{'tok/s':>11}{'ms/step':>9}{'limit':>7}{'wanted':>9}{'here':>9}{'vLLM':>9}"


def _line(row: Row) -> str:
    mark = "" if row.tok_s >= row.here else "  below"
    if row.tensor * row.pipeline > 1:
        mark += f"  tensor {row.tensor}, pipeline {row.pipeline}"
    return (
        f"{row.shape:6}{row.workload:11}{row.seconds:9.3f}{row.tok_s:11,.0f}{row.ms_per_step:9.2f}{row.of_limit:7.0%}"
        f"{row.wanted:9,}{row.here:9,}{row.vllm:9,}{mark}"
    )


def measure_shape(shape: str, args: argparse.Namespace, found: Found) -> None:
    """One GPU, then the group if args ask for one."""
    folder = checkpoint(shape, args.models)
    context, alone = context_of(args.workloads.split(",")), list[Row]()
    if not args.group_only:
        begin = time.perf_counter()
        runner = CudaRunner(RunnerConfig(folder, context_length=context))
        print(f"{shape}: loaded in {time.perf_counter() - begin:.1f} s, {runner.blocks} blocks", file=sys.stderr)
        alone = measure(shape, runner, folder, args, found, (lambda work, _: [traced(work)]) if args.trace else None)
        del runner
        torch.cuda.empty_cache()
    if (ranks := args.tensor * args.pipeline) > 1:
        begin, tracer = time.perf_counter(), RankTracer(ranks) if args.trace else None
        group = RankProcesses(
            folder, args.tensor, args.pipeline, 300, "" if tracer is None else tracer.code,
            device="cuda", context_length=context,
        )  # fmt: skip
        print(f"{shape}: loaded in {time.perf_counter() - begin:.1f} s, {group.blocks} blocks", file=sys.stderr)
        try:
            rows = measure(shape, group, folder, args, found, None if tracer is None else tracer.traced)
        finally:
            group.close()
        if alone:
            compared(rows, alone, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", choices=NAMES)
    parser.add_argument(
        "--workloads", default=",".join(USUAL), help=f"of {', '.join(WORKLOADS)} (default: all but the long)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts (default 3)")
    parser.add_argument("--trace", action="store_true", help="more runs of each: their kernels, and how long none ran")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache/octavo/bench", help="random checkpoints")
    parser.add_argument("--tensor", type=int, default=1, help="then a group, each layer split over so many GPUs")
    parser.add_argument("--pipeline", type=int, default=1, help="then a group, the layers split over so many GPUs")
    parser.add_argument("--group-only", action="store_true", help="without the rows of one GPU")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    if args.group_only and args.tensor * args.pipeline == 1:
        parser.error("--group-only: there is no group without --tensor or --pipeline")
    made_on = record.machine(["torch"]) | {"gpu": torch.cuda.get_device_name()}
    print(HEADER)
    with Found(args.out, made_on) as found:
        for shape in args.shapes:
            measure_shape(shape, args, found)


if __name__ == "__main__":
    main()
