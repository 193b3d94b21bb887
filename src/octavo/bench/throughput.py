"""`octavo bench throughput`: every prompt at once to a server of the command's own; requests and tokens a second.

octavo bench throughput [OPTION ...] [-- OPTION-OF-OCTAVO-RUN ...]
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.bench import options, results, running
from octavo.bench.arithmetic import report
from octavo.bench.arithmetic.datasets import DatasetError, Request
from octavo.bench.arithmetic.metrics import Answer
from octavo.bench.arithmetic.protocol import Api
from octavo.bench.client import Client, allow_connections
from octavo.bench.local import BUNDLED, SAMPLING, NotServed, Server, model_folder, served, split
from octavo.bench.progress import Progress
from octavo.bench.tokenizer import TokenizerError, Tokens
from octavo.bench.workload import workload
from octavo.errors import UsageError

TITLE = "octavo bench throughput"
QUEUE = 1_000  # requests that octavo run lets wait by default


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of the requests that were answered."""

    completed: int
    elapsed_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def __str__(self) -> str:
        """The lines that vLLM's benchmark prints."""
        rates = (value / self.elapsed_s for value in (self.completed, self.tokens, self.output_tokens))
        requests_s, total_s, output_s = (f"{rate:.2f}" for rate in rates)
        return (
            f"Throughput: {requests_s} requests/s, {total_s} total tokens/s, {output_s} output tokens/s\n"
            f"Total num prompt tokens:  {self.prompt_tokens}\n"
            f"Total num output tokens:  {self.output_tokens}"
        )

    def result(self) -> report.Json:
        return {
            "elapsed_time": self.elapsed_s,
            "num_requests": self.completed,
            "total_num_tokens": self.tokens,
            "requests_per_second": self.completed / self.elapsed_s,
            "tokens_per_second": self.tokens / self.elapsed_s,
        }


def main(argv: list[str]) -> int:
    """0 when measured; 1 when no request succeeded; 2 for wrong usage; else octavo run's exit code."""
    own, flags = split(argv)
    args = _parser().parse_args(own)
    try:
        tokens = Tokens(args.tokenizer or model_folder(args.model))
        requests = workload(options.dataset(args), tokens, 0, as_text=False).requests
    except TokenizerError as error:
        return _say(f"--tokenizer: {error}" if args.tokenizer else f"--model: {error}", 2)
    except (UsageError, DatasetError) as error:
        return _say(str(error), 2)
    allow_connections()
    queue = [f"--queue-max-requests={max(QUEUE, len(requests))}", "--queue-max-wait=360m"]  # no request is rejected
    try:
        with served(args.model, [*queue, *flags]) as server:
            answers, elapsed_s = running.run(_run(server, requests, args.disable_tqdm))
    except NotServed as error:
        return _say(str(error), error.code)
    return _finish(answers, elapsed_s, args.output_json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=TITLE,
        description="Send every prompt at once to a server that is started for it (octavo run).",
        epilog="What follows `--` goes to octavo run, such as: -- --max-requests 256 --device cpu",
        allow_abbrev=False,
    )
    parser.add_argument("--model", default=BUNDLED, help="folder or uri, as of octavo run (default: %(default)s)")
    parser.add_argument("--tokenizer", type=Path, help="folder with a tokenizer.json (default: the model's)")
    options.add_dataset(parser)
    parser.add_argument("--output-json", type=Path, help="file for the result")
    parser.add_argument("--disable-tqdm", action="store_true", help="show no progress")
    return parser


async def _run(server: Server, requests: Sequence[Request], quiet: bool) -> tuple[list[Answer], float]:
    api = Api(False, server.model, True, SAMPLING)
    with Progress(TITLE, len(requests), quiet=quiet) as progress:
        async with Client(server.base_url, "/v1/completions", {}) as client:

            async def one(request: Request) -> Answer:
                answer = await client.whole(api, request)
                progress.step(failed=bool(answer.error))
                return answer

            begin = time.perf_counter()
            answers = await asyncio.gather(*(one(request) for request in requests))
            return answers, time.perf_counter() - begin


def _finish(answers: Sequence[Answer], elapsed_s: float, file: Path | None) -> int:
    complete = [answer for answer in answers if not answer.error]
    measured = Throughput(
        len(complete),
        elapsed_s,
        sum(answer.prompt_tokens for answer in complete),
        sum(answer.output_tokens for answer in complete),
    )
    print(measured, flush=True)
    if failed := report.failures(answers):
        _say(failed, 1)
    try:
        if file is not None:
            results.write(file, measured.result())
    except OSError as error:
        return _say(f"--output-json {file}: {error.strerror}", 1)
    return 0 if complete else 1


def _say(text: str, code: int) -> int:
    print(f"{TITLE}: {text}", file=sys.stderr)
    return code
