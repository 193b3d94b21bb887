"""A table of loads over HTTP: `python benchmarks/loads.py [SHAPE] [--loads 128/128,...] [--streams 1,...] [-- FLAGS]`.

    client processes  --HTTP, streaming-->  routers  --gRPC-->  engine

`octavo run FOLDER` with its default settings, but for `--routers` router processes and FLAGS; the model has the shape
of Qwen3-8B unless another one is named. A load IN/OUT has so many streams at once, each of which sends its next
request when its last has ended; prompts are token ids, no two alike, answers of fixed length. The client is the
`openai` package where it is installed, and else the raw connections of streams.py; standard error and the file say
which.

    tok/s            from the first request to the last token
    TTFT p50, p99    milliseconds from the request to its first token
    ITL p50, p99     milliseconds between two frames of a stream
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record
import served
from record import Found
from report import Report
from serve import GRAPHS, GRAPHS_S, summary
from served import Server
from streams import Clients, Job

RAW, OPENAI = Path(__file__).parent / "streams.py", Path(__file__).parent / "openai_streams.py"
LOADS = "128/128,128/1024,1024/128,2048/2048,8192/512"
STREAMS = "1,8,64,256,512"
TURNS = {"128/128": 4, "1024/128": 4}  # requests of a stream where they are short, else one
Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Load:
    """tokens_in, tokens_out: of each request. turns: requests of a stream, one after the other."""

    tokens_in: int
    tokens_out: int
    streams: int
    turns: int

    @property
    def name(self) -> str:
        return f"{self.tokens_in}/{self.tokens_out}, {self.streams}"

    def jobs(self, source: random.Random, vocabulary: int) -> list[Job]:
        return [
            Job(source.choices(range(vocabulary), k=self.tokens_in), self.tokens_out, lane=number % self.streams)
            for number in range(self.streams * self.turns)
        ]


def loads(names: str, streams: str, turns: int | None) -> Iterator[Load]:
    """Raises ValueError, which names what is not IN/OUT or not a number."""
    for name in names.split(","):
        tokens_in, _, tokens_out = name.partition("/")
        for count in streams.split(","):
            yield Load(int(tokens_in), int(tokens_out), int(count), turns or TURNS.get(name, 1))


def client() -> tuple[Path, str]:
    """The script of the client processes, and what it is."""
    asked = [sys.executable, "-c", "import openai; print(openai.__version__)"]
    found = subprocess.run(asked, capture_output=True, text=True)
    return (RAW, "raw connections") if found.returncode else (OPENAI, f"openai {found.stdout.strip()}")


HEADER = f"{'load, streams':20}{'requests':>9}{'s':>9}{'tok/s':>9}{'TTFT p50':>11}{'p99':>10}{'ITL p50':>9}{'p99':>9}"


def line(load: Load, found: Report) -> str:
    failed = f"  {found.failed} FAILED" if found.failed else ""
    first, gap = found.first_token, found.between_tokens
    return (
        f"{load.name:20}{found.successful:9}{found.duration_s:9.2f}{found.output_tok_s:9,.0f}{first.median:11.1f}"
        f"{first.p99:10.1f}{gap.median:9.2f}{gap.p99:9.2f}{failed}"
    )


def figures(load: Load, report: Report) -> Json:
    return {
        "load": load.name, "requests": report.successful, "failed": report.failed, "s": round(report.duration_s, 3),
        "output_tok_s": round(report.output_tok_s, 1), "first_ms": report.first_token.median,
        "first_p99_ms": report.first_token.p99, "gap_ms": report.between_tokens.median,
        "gap_p99_ms": report.between_tokens.p99,
    }  # fmt: skip


def measure(server: Server, vocabulary: int, arguments: argparse.Namespace, found: Found) -> None:
    source, clients = random.Random(1), Clients(server.port, arguments.clients, script=arguments.client)
    least = min(arguments.chosen, key=lambda load: load.tokens_in)
    warm = Load(least.tokens_in, min(least.tokens_out, 32), min(least.streams, 8), 1).jobs(source, vocabulary)
    summary(warm, clients.run(warm))
    print(HEADER, flush=True)
    for load in arguments.chosen:
        jobs = load.jobs(source, vocabulary)
        one = summary(jobs, clients.run(jobs))
        print(line(load, one), flush=True)
        found.put(load.name, figures(load, one))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("shape", nargs="?", default="qwen8b", help="of random weights, as in shapes.py (default: %(default)s)")
    add("--model", type=Path, help="a folder to serve instead")
    add("--loads", default=LOADS, metavar="IN/OUT,...", help="default: %(default)s")
    add("--streams", default=STREAMS, metavar="N,...", help="of each load (default: %(default)s)")
    add("--turns", type=int, help="requests of a stream (default: 4 of 128/128 and 1024/128, else 1)")
    add("--routers", type=int, default=4, help="router processes (default: %(default)s)")
    add("--clients", type=int, default=8, help="client processes (default: %(default)s)")
    add("--raw", action="store_true", help="raw connections, whatever is installed: what the client itself costs")
    add("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    add("--out", type=Path, help="JSON")
    own, flags = served.split(sys.argv[1:])
    arguments = parser.parse_args(own)
    try:
        arguments.chosen = list(loads(arguments.loads, arguments.streams, arguments.turns))
    except ValueError as error:
        parser.error(f"--loads, --streams: {error}")
    arguments.client, kind = (RAW, "raw connections") if arguments.raw else client()
    made_on = record.machine(["torch", "grpcio"]) | {"gpu": served.gpu(), "client": kind, "flags": " ".join(flags)}
    model = arguments.model or served.folder_of(arguments.shape, arguments.models)
    given = ["--router-processes", str(arguments.routers), *flags]
    with Found(arguments.out, made_on) as found, served.serving(model, given) as server:
        print(f"{model.name}: ready after {server.until_ready():.1f} s; client: {kind}", file=sys.stderr)
        if served.gpu() and server.until_seen(GRAPHS, GRAPHS_S) is None:
            print("the log does not say that graphs are captured; going on", file=sys.stderr)
        measure(server, served.sizes(model).vocabulary, arguments, found)


if __name__ == "__main__":
    main()
