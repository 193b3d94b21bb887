"""The whole path under load: `python benchmarks/serve.py 1b 8b [--steady] [--routers N] [--out FILE] [-- FLAGS]`.

    client processes  --HTTP, streaming-->  routers  --gRPC-->  engine

`octavo run FOLDER` with N router processes; prompts as token ids, greedy, answers of fixed length; FLAGS are more of
octavo run's. Every repetition has other prompts of the same lengths, so that no prefix is cached.

    (plain)    a workload of workloads.py, all requests at once: what vLLM's serving benchmark prints, and the share of
               the offline engine's out tok/s (`--offline`, else the newest engine-*.json in results)
    --steady   16 streams, quiet, then while prompts of 8,000 to 32,000 tokens arrive: the p99 time between two tokens
               of the steady streams while prompts arrive, against that of the quiet time; and how prompts fared
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import record
import served
from record import Found
from report import Finished, Report, report
from served import Server, Sizes
from steady import SideBySide, side_by_side
from streams import Answer, Clients, Job
from workloads import NAMES as WORKLOADS
from workloads import workload

SHARES = {"1b": 0.8, "8b": 0.9}  # of the offline engine, wanted
SHAPES = tuple(SHARES)
MOST_SLOWER = 2.5  # steady streams beside long prompts, wanted
GRAPHS = r"\bcaptured (all )?\d* ?graphs\b|\bgraphs captured\b"
GRAPHS_S = 20.0
Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Settings:
    workload: str
    requests: int | None
    divide: int
    repeat: int
    clients: int


class Load:
    """What is sent to one server."""

    def __init__(self, server: Server, sizes: Sizes, settings: Settings) -> None:
        self._clients = Clients(server.port, settings.clients)
        self._vocabulary = sizes.vocabulary
        self._settings = settings

    def throughput(self) -> Iterator[Report]:
        """One report a repetition, without that which warms up."""
        for turn in range(self._settings.repeat + 1):
            one = self._once(turn)
            if turn:
                yield one

    def _once(self, turn: int) -> Report:
        requests = workload(self._settings.workload)[: self._settings.requests]
        divide = self._settings.divide
        jobs = [
            Job(self._ids(one.prompt[: max(1, len(one.prompt) // divide)], turn), max(1, one.new_tokens // divide))
            for one in requests
        ]
        return summary(jobs, self._clients.run(jobs))

    def _ids(self, ids: Sequence[int], turn: int) -> list[int]:
        """Others in each turn, and none beyond the vocabulary."""
        return [(id_ + 7919 * turn) % self._vocabulary for id_ in ids]


def summary(jobs: Sequence[Job], answers: Sequence[Answer]) -> Report:
    """From the first sending to the last token. A stream with another length than asked for has failed."""
    finished = [
        Finished(len(job.prompt), answer.tokens, [at - answer.sent_s for at in answer.frames_s])
        for job, answer in zip(jobs, answers, strict=True)
        if answer.complete and answer.tokens == job.new_tokens
    ]
    if not finished:
        raise RuntimeError(f"no request succeeded; the first one: {answers[0].error or 'cut off'}")
    begin = min(answer.sent_s for answer in answers)
    end = max(answer.frames_s[-1] for answer in answers if answer.frames_s)
    return report(finished, len(jobs) - len(finished), end - begin)


def offline_tok_s(shape: str, workload_name: str) -> float | None:
    """Of the newest result of engine.py that has it."""
    files = sorted(record.RESULTS.glob("engine-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for file in files:
        for row in json.loads(file.read_text())["results"]:
            if (row.get("shape"), row.get("workload")) == (shape, workload_name):
                return float(row["tok_s"])
    return None


def throughput(name: str, load: Load, settings: Settings, offline: float | None, found: Found) -> None:
    reports: list[Report] = []
    try:
        for one in load.throughput():
            reports.append(one)
            print(f"{name}: {one.output_tok_s:,.0f} tok/s", file=sys.stderr, flush=True)
            found.put(name, _throughput_figures(name, reports, settings, offline))
    finally:
        if reports:
            _tell_throughput(_middle(reports), _throughput_figures(name, reports, settings, offline))


def _middle(reports: list[Report]) -> Report:
    return sorted(reports, key=lambda one: one.output_tok_s)[(len(reports) - 1) // 2]


def _throughput_figures(name: str, reports: list[Report], settings: Settings, offline: float | None) -> Json:
    middle = _middle(reports)
    found: Json = {
        "model": name, "workload": settings.workload, "output_tok_s": round(middle.output_tok_s, 1),
        "runs_tok_s": [round(one.output_tok_s, 1) for one in reports], **asdict(middle),
    }  # fmt: skip
    if offline is not None:
        share = round(middle.output_tok_s / offline, 3)
        found |= {"offline_tok_s": offline, "share": share, "wanted_share": SHARES.get(name)}
    return found


def _tell_throughput(middle: Report, figures: Json) -> None:
    print(middle, flush=True)
    if (share := figures.get("share")) is not None:
        verdict = _verdict(figures["wanted_share"], share, at_least=True)
        print(f"{figures['model']}: {share:.1%} of {figures['offline_tok_s']:,.0f} tok/s offline{verdict}", flush=True)


def steady(name: str, server: Server, sizes: Sizes, settings: SideBySide) -> Json:
    clients = Clients(server.port, settings.clients)
    found = {"model": name, "wanted_times": MOST_SLOWER, **side_by_side(clients, sizes, settings)}
    print(
        f"{name}: p99 between tokens {found['loud_p99_ms']} ms beside {found['prompts']} long prompts, quiet "
        f"{found['quiet_p99_ms']} ms: {found['times']} times" + _verdict(MOST_SLOWER, found["times"], at_least=False)
    )
    print(
        f"{name}: {found['prompts_answered']} of them answered by the end, {found['prompt_tokens']} tokens, the median "
        f"after {found['first_token_median_s']} s",
        flush=True,
    )
    return found


def _verdict(wanted: float | None, found: float, *, at_least: bool) -> str:
    if wanted is None:
        return ""
    missed = found < wanted if at_least else found > wanted
    return f" (wanted {'at least' if at_least else 'at most'} {wanted:g}{', MISSED' if missed else ''})"


def measure(name: str, model: Path, arguments: argparse.Namespace, flags: list[str], found: Found) -> None:
    settings = _settings(arguments)
    given = ["--router-processes", str(arguments.routers), *flags]
    with served.serving(model, given) as server:
        ready_s = server.until_ready()
        print(f"{name}: ready after {ready_s:.1f} s", file=sys.stderr)
        if served.gpu() and server.until_seen(GRAPHS, GRAPHS_S) is None:
            print(f"{name}: the log does not say that graphs are captured; going on", file=sys.stderr)
        if arguments.steady:
            found.put(name, steady(name, server, served.sizes(model), _side_by_side(arguments)))
            return
        load = Load(server, served.sizes(model), settings)
        offline = arguments.offline or offline_tok_s(name, settings.workload)
        throughput(name, load, settings, offline, found)


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        arguments.workload, arguments.requests, arguments.divide, arguments.repeat, arguments.clients
    )  # fmt: skip


def _side_by_side(arguments: argparse.Namespace) -> SideBySide:
    low, _, high = arguments.long.partition(":")
    return SideBySide(
        arguments.streams, (int(low), int(high)), arguments.every, arguments.quiet, arguments.loud, arguments.clients
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("shapes", nargs="*", metavar="SHAPE", help=f"of random weights: {', '.join(SHAPES)}")
    add("--model", type=Path, help="a folder to serve instead")
    add("--workload", choices=WORKLOADS, default="mixed256", help="default: %(default)s")
    add("--requests", type=int, help="only so many of the workload")
    add("--divide", type=int, default=1, help="all lengths of the workload by this, for small machines")
    add("--repeat", type=int, default=3, help="runs, after one to warm up; the median counts (default: %(default)s)")
    add("--routers", type=int, default=4, help="router processes (default: %(default)s)")
    add("--clients", type=int, default=4, help="client processes (default: %(default)s)")
    add("--offline", type=float, help="out tok/s of the engine alone")
    add("--steady", action="store_true", help="streams beside long prompts, instead of the workload")
    add("--streams", type=int, default=16, help="steady ones (default: %(default)s)")
    add("--long", default="8000:32000", metavar="LOW:HIGH", help="tokens of long prompts (default: %(default)s)")
    add("--every", type=float, default=1.0, metavar="S", help="between long prompts (default: %(default)s)")
    add(
        "--quiet",
        type=float,
        default=6.0,
        metavar="S",
        help="before, and after the last (default: %(default)s)",
    )
    add("--loud", type=float, default=15.0, metavar="S", help="while they arrive (default: %(default)s)")
    add("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    add("--out", type=Path, help="JSON")
    return parser


def main() -> None:
    parser = _parser()
    own, flags = served.split(sys.argv[1:])
    arguments = parser.parse_args(own)
    if unknown := [shape for shape in arguments.shapes if shape not in SHAPES]:
        parser.error(f"{unknown[0]!r} is no shape; there are {', '.join(SHAPES)}")
    made_on = record.machine(["torch", "grpcio", "aiohttp", "uvloop"]) | {"gpu": served.gpu()}
    models = {shape: served.folder_of(shape, arguments.models) for shape in arguments.shapes}
    if arguments.model is not None:
        models[arguments.model.name] = arguments.model
    if not models:
        parser.error("give a SHAPE or --model")
    with Found(arguments.out, made_on) as found:
        for name, model in models.items():
            measure(name, model, arguments, flags, found)


if __name__ == "__main__":
    main()
