"""A full device for minutes: `python benchmarks/soak.py 8b [--minutes 10] [--out FILE]`.

Rounds of requests of all lengths up to the longest context, more than the KV cache holds at once, greedy and drawn,
until the time is over, when what runs is cut off. Ends with an error when the device runs out of memory or an answer is
not whole; prints what was done and the least memory that was ever free. `--model FOLDER` soaks any model, on a CPU too.
"""

import argparse
import random
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import record
import served
import torch
from shapes import NAMES, checkpoint

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import Finish
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, Pending, RunnerConfig

sys.path.insert(0, str(record.ROOT / "tests"))

from support.worker.engine import Answer, LocalEngine

LONGEST, NEW = 4, 256  # requests in a round of the longest context; tokens that each answers at most
LONG = 8192  # tokens of the other prompts, at most
DRAWN = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, seed=11)
MEMORY_EVERY = 50  # steps between looks at it


class Timed(LocalEngine):
    """Gives up what is unanswered once the time is over."""

    def __init__(self, runner: DeviceRunner, end: float) -> None:
        """end: by the monotonic clock."""
        super().__init__(runner)
        self._end = end
        self._looked = 0
        self.least_free = sys.maxsize  # bytes of the device; not sampled for a CPU

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    def _drive(self, answers: dict[int, Answer], under_way: deque[Pending]) -> None:
        try:
            super()._drive(answers, under_way)
        except TimeoutError:
            while under_way:
                self._settle(under_way.popleft())

    def _fill(self, under_way: deque[Pending]) -> None:
        if self.over:
            raise TimeoutError
        super()._fill(under_way)
        if self._runner.device == "cuda" and self.steps >= self._looked:
            self._looked = self.steps + MEMORY_EVERY
            self.least_free = min(self.least_free, torch.cuda.mem_get_info()[0])


class Soak:
    def __init__(self, runner: DeviceRunner, minutes: float, others: int) -> None:
        """others: requests of a round beside the longest ones."""
        self._runner, self._others = runner, others
        self._begin = time.monotonic()
        self.engine = Timed(runner, self._begin + 60 * minutes)
        self._source = random.Random(1)
        self.answered = self.cut = self.prompt_tokens = self.new_tokens = self.preemptions = 0
        self.rounds = 0  # that ended by themselves

    def round(self) -> None:
        longest = self._runner.context_length - NEW
        lengths = [longest] * LONGEST
        lengths += [self._source.randint(1, min(LONG, longest)) for _ in range(self._others)]
        self._source.shuffle(lengths)
        prompts = [self._prompt(length) for length in lengths]
        asked = [self._source.randint(1, NEW) for _ in lengths]
        how = [DRAWN if index % 2 else SamplingParams() for index in range(len(lengths))]
        self.engine.forget()
        try:
            answers = self.engine.run(prompts, asked, how)
        except TimeoutError:  # while prompts were taken in
            answers = [Answer() for _ in prompts]
        self._count(lengths, asked, answers)
        self.preemptions += self.engine.scheduler.load().preemptions

    def _prompt(self, length: int) -> list[int]:
        return self._source.choices(range(self._runner.vocabulary), k=length)

    def _count(self, lengths: list[int], asked: list[int], answers: list[Answer]) -> None:
        whole = [len(answer.ids) == wanted for answer, wanted in zip(answers, asked, strict=True)]
        for answer, right in zip(answers, whole, strict=True):
            if not right and answer.finish is not Finish.NOT_FINISHED:
                raise RuntimeError(f"round {self.rounds}: an answer of {len(answer.ids)} tokens is not whole")
        self.rounds += all(whole)
        self.answered += sum(whole)
        self.cut += len(whole) - sum(whole)
        self.prompt_tokens += sum(length for length, answer in zip(lengths, answers, strict=True) if answer.ids)
        self.new_tokens += sum(len(answer.ids) for answer in answers)

    def found(self, model: str) -> dict[str, Any]:  # JSON
        free = self.engine.least_free
        return {
            "model": model, "minutes": round((time.monotonic() - self._begin) / 60, 2), "rounds": self.rounds,
            "context_length": self._runner.context_length, "kv_blocks": self._runner.blocks, "answered": self.answered,
            "cut_at_the_end": self.cut, "prompt_tokens": self.prompt_tokens, "new_tokens": self.new_tokens,
            "steps": self.engine.steps, "preemptions": self.preemptions,
            "least_free_gib": None if free == sys.maxsize else round(free / 2**30, 2),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", choices=NAMES, help="of random weights")
    parser.add_argument("--model", type=Path, help="a folder to soak instead")
    parser.add_argument("--minutes", type=float, default=10.0, help="of work, once loaded (default: %(default)s)")
    parser.add_argument("--others", type=int, default=300, help="shorter requests in a round (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--kv-cache-mib", type=int, help="of the KV cache (default: what is left)")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    if (args.shape is None) == (args.model is None):
        parser.error("give a SHAPE or --model")
    folder = args.model or checkpoint(args.shape, args.models)
    kv_bytes = None if args.kv_cache_mib is None else args.kv_cache_mib << 20
    made_on = record.machine(["torch"]) | {"gpu": served.gpu()}
    with record.Found(args.out, made_on) as kept:
        soak = Soak(open_runner(RunnerConfig(folder, kv_cache_bytes=kv_bytes)), args.minutes, args.others)
        soak.engine.capture()
        try:
            while not soak.engine.over:
                soak.round()
        finally:
            found = soak.found(args.shape or folder.name)
            print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
            kept.put("soak", found)


if __name__ == "__main__":
    main()
