"""`octavo bench serve`: load on a server, as a client of it sees what comes back.

options -> requests -> (wait until ready, warm up) -> send each at its time -> measure -> print, save, draw
"""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import TypeVar

from octavo.bench import plot, results, running
from octavo.bench.arithmetic import report
from octavo.bench.arithmetic.arrivals import offsets
from octavo.bench.arithmetic.datasets import DatasetError, Request
from octavo.bench.arithmetic.metrics import Answer, Metrics, counted, measure
from octavo.bench.arithmetic.protocol import Api
from octavo.bench.arithmetic.report import Load
from octavo.bench.client import Client, Unreachable, allow_connections
from octavo.bench.progress import Progress
from octavo.bench.serve_options import ServeOptions, parse
from octavo.bench.tokenizer import TokenizerError, Tokens
from octavo.bench.workload import Workload, workload
from octavo.errors import UsageError

READY_PAUSE_S = 1.0
TITLE = "octavo bench serve"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """What came back, in the order of sending. model: its name in the result. cpu_s: of this process."""

    model: str
    answers: list[Answer]
    duration_s: float
    cpu_s: float


def main(argv: list[str]) -> int:
    """0 when measured; 1 when no request succeeded or the server is not there; 2 for wrong usage."""
    try:
        options = parse(argv, os.environ)
        tokens = None if options.tokenizer is None else Tokens(options.tokenizer)
        before = options.warmups + (options.ready_timeout_s > 0)
        wanted = workload(options.dataset, tokens, before, options.target.chat)
        results.prepare(options.saving)
    except TokenizerError as error:
        return _say(f"--tokenizer: {error}", 2)
    except (UsageError, DatasetError) as error:
        return _say(str(error), 2)
    allow_connections()
    try:
        run = running.run(_run(options, wanted))
    except Unreachable as error:
        return _say(str(error), 1)
    count = None if tokens is None else tokens.count
    return _finish(options, replace(run, answers=[counted(answer, count) for answer in run.answers]))


def _say(text: str, code: int) -> int:
    print(f"{TITLE}: {text}", file=sys.stderr)
    return code


async def _run(options: ServeOptions, wanted: Workload) -> Run:
    """Raises Unreachable."""
    deadline = time.monotonic() + options.ready_timeout_s
    target = options.target
    async with Client(target.base_url, target.endpoint, target.headers, verify=target.verify) as client:
        model = target.model or target.served_name
        if model is None:
            model = await _until(deadline, client.first_model)
        api = Api(target.chat, target.served_name or model, options.ignore_eos, options.extra)
        warmups = wanted.warmups
        if options.ready_timeout_s > 0:
            await _until(deadline, lambda: _probe(client, api, warmups[-1]))
            warmups = warmups[:-1]
        if warmups:
            await _offer(client, api, warmups, replace(options.load, request_rate=float("inf")), options, "warm-up")
        spent = time.process_time()
        answers, duration = await _offer(client, api, wanted.requests, options.load, options, TITLE)
        return Run(model, answers, duration, time.process_time() - spent)


async def _until(deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
    """Again until the deadline. Raises the last Unreachable."""
    while True:
        try:
            return await attempt()
        except Unreachable:
            if time.monotonic() + READY_PAUSE_S > deadline:
                raise
            await asyncio.sleep(READY_PAUSE_S)


async def _probe(client: Client, api: Api, request: Request) -> None:
    """Raises Unreachable unless the server answers it in full."""
    if error := (await client.stream(api, request)).error:
        raise Unreachable(f"the server is not ready: {error}")


async def _offer(
    client: Client, api: Api, requests: Sequence[Request], load: Load, options: ServeOptions, title: str
) -> tuple[list[Answer], float]:
    """Sends each request at its time, or when there is room for it; all answers and how long it took, in seconds."""
    sent = offsets(len(requests), load.request_rate, load.burstiness, Random(f"arrivals {options.dataset.seed}"))
    bound = load.max_concurrency
    room: AbstractAsyncContextManager[None] = nullcontext() if bound is None else asyncio.Semaphore(bound)
    # A collection of what is never freed here would show as a gap in every stream.
    gc.collect()
    gc.freeze()
    with Progress(title, len(requests), quiet=options.quiet) as progress:

        async def one(request: Request) -> Answer:
            due_s = time.perf_counter() - client.begin
            async with room:
                answer = await client.stream(api, request)
            progress.step(failed=bool(answer.error))
            return replace(answer, queued_s=answer.start_s - due_s)

        client.begin = time.perf_counter()
        tasks = []
        for request, at in zip(requests, sent, strict=True):
            if (pause := client.begin + at - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(one(request)))
        answers = await asyncio.gather(*tasks)
        return answers, time.perf_counter() - client.begin


def _finish(options: ServeOptions, run: Run) -> int:
    metrics = measure(run.answers, run.duration_s, options.shares, options.objectives)
    print(report.block(metrics, options.load, options.shown), flush=True)
    for warning in (report.failures(run.answers), report.busy(run.cpu_s, run.duration_s)):
        if warning:
            _say(warning, 1)
    try:
        _save(options, run, metrics)
        if options.plot is not None:
            title = f"{run.model}: {metrics.completed} requests, {metrics.output_tok_s:.0f} output tokens/s"
            plot.draw(run.answers, title, options.plot)
    except (OSError, plot.PlotError) as error:
        return _say(f"cannot write the result: {error}", 1)
    return 0 if metrics.completed else 1


def _save(options: ServeOptions, run: Run, metrics: Metrics) -> None:
    saving, now = options.saving, datetime.now()
    if not (saving.save or saving.append):
        return
    written: report.Json = {
        "date": f"{now:%Y%m%d-%H%M%S}",
        "endpoint_type": options.target.backend,
        "backend": options.target.backend,
        "label": saving.label,
        "model_id": run.model,
        "tokenizer_id": None if options.tokenizer is None else str(options.tokenizer),
        "num_prompts": len(run.answers),
        **saving.metadata,
        **report.result(metrics, options.load, options.shown),
    }
    if saving.detailed:
        written |= report.details(run.answers)
    file = results.path(saving, saving.label or options.target.backend, options.load, run.model, now)
    results.write(file, written, append=saving.append)
    print(f"{TITLE}: wrote {file}", file=sys.stderr)
