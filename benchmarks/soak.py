"""A full device for minutes: `python benchmarks/soak.py 8b [--minutes 10] [--out FILE]`.

Rounds of requests of all lengths up to the longest context, more than the KV cache holds at once, greedy and drawn,
until the time is over. Ends with an error when the device runs out of memory or an answer is not whole; prints what was
done and the least memory that was ever free.
"""

import argparse
import random
import time
from pathlib import Path

import record
import torch
from engine import LocalEngine
from shapes import NAMES, checkpoint

from octavo.worker.cuda.runner import CudaRunner
from octavo.worker.device import RunnerConfig
from octavo.worker.request import Sampling

LONGEST, OTHERS, NEW = 4, 300, 256  # requests in a round; tokens that each answers at most
DRAWN = Sampling(temperature=0.9, top_k=50, top_p=0.95, seed=11)


class Soak:
    def __init__(self, runner: CudaRunner) -> None:
        self._runner = runner
        self._engine = LocalEngine(runner)
        self._engine.capture()
        self._source = random.Random(1)
        self.rounds = self.prompt_tokens = self.new_tokens = self.preemptions = 0
        self.least_free = torch.cuda.mem_get_info()[0]

    def round(self) -> None:
        lengths = [self._runner.context_length - NEW] * LONGEST
        lengths += [self._source.randint(1, 8192) for _ in range(OTHERS)]
        self._source.shuffle(lengths)
        prompts = [[self._source.randrange(self._runner.vocabulary) for _ in range(length)] for length in lengths]
        asked = [self._source.randint(1, NEW) for _ in lengths]
        how = [DRAWN if index % 2 else Sampling() for index in range(len(lengths))]
        self._engine.forget()
        answers = self._engine.run(prompts, asked, how)
        if [len(answer.ids) for answer in answers] != asked:
            raise RuntimeError(f"round {self.rounds}: an answer is not whole")
        self.rounds += 1
        self.prompt_tokens += sum(lengths)
        self.new_tokens += sum(asked)
        self.preemptions += self._engine.scheduler.load().preemptions
        self.least_free = min(self.least_free, torch.cuda.mem_get_info()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=NAMES)
    parser.add_argument("--minutes", type=float, default=10.0, help="default: %(default)s")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache/octavo/bench", help="random checkpoints")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    soak = Soak(runner := CudaRunner(RunnerConfig(checkpoint(args.shape, args.models))))
    begin = time.monotonic()
    while time.monotonic() - begin < 60 * args.minutes:
        soak.round()
    found = {
        "model": args.shape, "minutes": round((time.monotonic() - begin) / 60, 2), "rounds": soak.rounds,
        "context_length": runner.context_length, "kv_blocks": runner.blocks, "prompt_tokens": soak.prompt_tokens,
        "new_tokens": soak.new_tokens, "preemptions": soak.preemptions,
        "least_free_gib": round(soak.least_free / 2**30, 2),
    }  # fmt: skip
    print("  ".join(f"{name} {value}" for name, value in found.items()))
    if args.out is not None:
        record.write(args.out, record.machine(["torch"]) | {"gpu": torch.cuda.get_device_name()}, [found])


if __name__ == "__main__":
    main()
