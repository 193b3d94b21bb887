"""What a step costs the scheduler: `python benchmarks/schedule.py [--steps N] [--out FILE]`.

256 requests decode with stages + 1 steps under way, on no device at all: results are drawn at random.

    steady   the same 256 requests all along: schedule + update; beside it what carries the step to the rank and the
             outputs back, and the fit of the step-time model
    churn    prompts of 100..1024 and outputs of 100..1024 tokens, and a new request for each that ends: prefill,
             prefix hashing and block release included; steps with 240 rows or more
    steady2, churn2   the same for a pipeline of two stages, whose steps carry half of the requests each
"""

import argparse
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import record

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.request import NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.scheduler import Limits, Scheduler

RUNNING = 256
LIMIT_US = 300  # schedule + update, median
VOCABULARY = 49152
LIMITS = Limits(blocks=40_000, block_size=16, max_batch_tokens=8192, max_requests=RUNNING, context_length=8192)


class Run:
    """Drives one scheduler and keeps the seconds of each part of each step."""

    def __init__(self, seed: int, stages: int) -> None:
        self.random = random.Random(seed)
        self.limits = replace(LIMITS, stages=stages, depth=stages + 1)
        self.scheduler = Scheduler(self.limits)
        self.in_flight: deque[tuple[Step, float]] = deque()
        self.keys = 0
        self.rows: list[int] = []
        self.parts: dict[str, list[float]] = {"schedule": [], "update": [], "codec": [], "observe": []}

    def submit(self, prompt_tokens: int, max_tokens: int) -> None:
        self.keys += 1
        prompt = tuple(self.random.choices(range(3, VOCABULARY), k=prompt_tokens))
        self.scheduler.submit(NewRequest(self.keys, prompt, SamplingParams(), max_tokens, frozenset({0, 2})))

    def step(self) -> int:
        """One step out and one result in, as in the engine's loop; returns how many requests ended."""
        clock = time.perf_counter
        while len(self.in_flight) < self.limits.depth:
            before = clock()
            step = self.scheduler.schedule()
            assert step is not None, "256 requests always have work"
            self.in_flight.append((step, clock() - before))
        step, schedule_s = self.in_flight.popleft()
        result = StepResult(step.number, tuple(self.random.choices(range(3, VOCABULARY), k=len(step.sample.rows))))
        begin = clock()
        outputs = self.scheduler.update(result)
        updated = clock()
        encode(step)
        decode(encode(result))
        encode(outputs)
        carried = clock()
        self.scheduler.observe(step.number, 0.006)
        observed = clock()
        self.rows.append(len(step.forward.slots))
        for part, seconds in zip(
            self.parts, (schedule_s, updated - begin, carried - updated, observed - carried), strict=True
        ):
            self.parts[part].append(seconds)
        return sum(output.finish != 0 for output in outputs)

    def figures(self, least_rows: int) -> dict[str, float]:
        """Microseconds a step."""
        chosen = [index for index, rows in enumerate(self.rows) if rows >= least_rows]
        totals = [(self.parts["schedule"][index] + self.parts["update"][index]) * 1e6 for index in chosen]
        medians = {f"{part}_us": statistics.median(s[i] for i in chosen) * 1e6 for part, s in self.parts.items()}
        return {
            "steps": len(chosen),
            "schedule_plus_update_us": statistics.median(totals),
            "schedule_plus_update_p99_us": statistics.quantiles(totals, n=100)[98],
            **medians,
        }


def steady(steps: int, stages: int) -> dict[str, float]:
    run = Run(1, stages)
    for _ in range(RUNNING):
        run.submit(run.random.randint(100, 1024), max_tokens=7000)
    while run.scheduler.load().prompt_tokens:
        run.step()
    for part in (run.rows, *run.parts.values()):
        part.clear()
    for _ in range(steps):
        run.step()
    return run.figures(least_rows=RUNNING // stages)


def churn(steps: int, stages: int) -> dict[str, float]:
    run = Run(2, stages)
    for _ in range(RUNNING):
        run.submit(run.random.randint(100, 1024), run.random.randint(100, 1024))
    for _ in range(steps):
        for _ in range(run.step()):
            run.submit(run.random.randint(100, 1024), run.random.randint(100, 1024))
    return run.figures(least_rows=240 // stages)


SCENARIOS: dict[str, tuple[Callable[[int, int], dict[str, float]], int]] = {
    "steady": (steady, 1),
    "churn": (churn, 1),
    "steady2": (steady, 2),
    "churn2": (churn, 2),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of a scheduler step at 256 running requests.")
    parser.add_argument("--steps", type=int, default=2000, help="steps to measure in each scenario")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "schedule-cpu.json")
    arguments = parser.parse_args()
    if arguments.steps < 100:
        parser.error("--steps: must be at least 100")
    made_on, results = record.machine(), dict[str, dict[str, float]]()
    for name, (scenario, stages) in SCENARIOS.items():
        figures = {key: round(value, 1) for key, value in scenario(arguments.steps, stages).items()}
        results[name] = figures
        print(
            f"{name:7} schedule + update {figures['schedule_plus_update_us']:6.0f} us a step"
            f" (p99 {figures['schedule_plus_update_p99_us']:.0f}) = schedule {figures['schedule_us']:.0f}"
            f" + update {figures['update_us']:.0f};  beside it: codec {figures['codec_us']:.0f},"
            f" observe {figures['observe_us']:.0f}"
        )
    record.write(arguments.out, made_on, {"running": RUNNING, "limit_us": LIMIT_US, **results})
    reached = results["steady"]["schedule_plus_update_us"] <= LIMIT_US
    print(f"{'reached' if reached else 'MISSED'}: at most {LIMIT_US} us")
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
