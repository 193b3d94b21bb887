"""`octavo bench latency`: one batch, again and again, on a server of the command's own; seconds from end to end.

    octavo bench latency [OPTION ...] [-- OPTION-OF-OCTAVO-RUN ...]

The same prompts each time, so the prefix cache is off: else all iterations but the first would skip their prefill.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from octavo.bench import results, running
from octavo.bench.arithmetic import report
from octavo.bench.arithmetic.datasets import DatasetError, RandomLengths, Request, random_requests
from octavo.bench.arithmetic.metrics import percentiles
from octavo.bench.arithmetic.protocol import Api
from octavo.bench.client import Client, allow_connections
from octavo.bench.local import BUNDLED, SAMPLING, NotServed, Server, model_folder, served, split
from octavo.bench.options import whole
from octavo.bench.progress import Progress
from octavo.bench.tokenizer import Ids, TokenizerError, Tokens
from octavo.errors import OctavoError, UsageError

TITLE = "octavo bench latency"
SHARES = (10, 25, 50, 75, 90, 99)


class BatchFailed(OctavoError):
    """A request of a batch failed, so that its duration has no meaning. The message is the request's error."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of each batch; at least one."""

    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)

    @property
    def std(self) -> float:
        return statistics.pstdev(self.seconds)

    def percentiles(self) -> dict[int, float]:
        return dict(zip(SHARES, percentiles(self.seconds, SHARES), strict=True))

    def __str__(self) -> str:
        """The lines that vLLM's benchmark prints."""
        lines = [f"Avg latency: {self.mean} seconds", f"Std latency: {self.std} seconds"]
        lines += [f"{share}% percentile latency: {value} seconds" for share, value in self.percentiles().items()]
        return "\n".join(lines)

    def result(self) -> report.Json:
        return {
            "avg_latency": self.mean,
            "std_latency": self.std,
            "latencies": list(self.seconds),
            "percentiles": {str(share): value for share, value in self.percentiles().items()},
        }


def main(argv: list[str]) -> int:
    """0 when measured; 1 when a request failed; 2 for wrong usage; else octavo run's exit code."""
    own, flags = split(argv)
    args = _parser().parse_args(own)
    try:
        tokens = Tokens(model_folder(args.model))
        lengths = RandomLengths(args.input_len, args.output_len, 0.0, 0)
        batch = random_requests(lengths, args.batch_size, Ids(tokens.ids), Random(args.seed))
    except TokenizerError as error:
        return _say(f"--model: {error}", 2)
    except (UsageError, DatasetError) as error:
        return _say(str(error), 2)
    allow_connections()
    try:
        with served(args.model, ["--no-prefix-caching", *flags]) as server:
            measured = running.run(_run(server, batch, args))
    except NotServed as error:
        return _say(str(error), error.code)
    except BatchFailed as error:
        return _say(f"a request failed: {error}", 1)
    print(measured, flush=True)
    try:
        if args.output_json is not None:
            results.write(args.output_json, measured.result())
    except OSError as error:
        return _say(f"--output-json {args.output_json}: {error.strerror}", 1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=TITLE,
        description="Time one batch of random prompts, again and again, on a server that is started for it.",
        epilog="What follows `--` goes to octavo run, such as: -- --max-requests 256 --device cpu",
        allow_abbrev=False,
    )
    parser.add_argument("--model", default=BUNDLED, help="folder or uri, as of octavo run (default: %(default)s)")
    parser.add_argument("--input-len", type=whole(1), default=32, help="tokens of a prompt (default: %(default)s)")
    parser.add_argument("--output-len", type=whole(1), default=128, help="tokens of an answer (default: %(default)s)")
    parser.add_argument("--batch-size", type=whole(1), default=8, help="prompts at once (default: %(default)s)")
    parser.add_argument("--num-iters-warmup", type=whole(0), default=10, help="not timed (default: %(default)s)")
    parser.add_argument("--num-iters", type=whole(1), default=30, help="timed batches (default: %(default)s)")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the prompts (default: %(default)s)")
    parser.add_argument("--output-json", type=Path, help="file for the result")
    parser.add_argument("--disable-tqdm", action="store_true", help="show no progress")
    return parser


async def _run(server: Server, batch: Sequence[Request], args: argparse.Namespace) -> Latency:
    """Raises BatchFailed."""
    api = Api(False, server.model, True, SAMPLING)
    async with Client(server.base_url, "/v1/completions", {}) as client:

        async def times(title: str, count: int) -> list[float]:
            taken = []
            with Progress(title, count, quiet=args.disable_tqdm) as progress:
                for _ in range(count):
                    begin = time.perf_counter()
                    answers = await asyncio.gather(*(client.whole(api, request) for request in batch))
                    taken.append(time.perf_counter() - begin)
                    if errors := [answer.error for answer in answers if answer.error]:
                        raise BatchFailed(errors[0])
                    progress.step()
            return taken

        if args.num_iters_warmup:
            await times("warm-up", args.num_iters_warmup)
        return Latency(tuple(await times(TITLE, args.num_iters)))


def _say(text: str, code: int) -> int:
    print(f"{TITLE}: {text}", file=sys.stderr)
    return code
