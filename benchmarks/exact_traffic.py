"""Random traffic for as long as one likes, each request compared with itself alone: `python benchmarks/exact_traffic.py
[--seconds 3600] [--seed 1] [--device cuda]`.

Rounds of random requests (tests/support/worker/random_traffic.py) on a KV cache that is short, on a CPU for several
splits of the model. Each round is of one seed, given again it is repeated. Prints what was compared, and ends with an
error at the first seed of which an answer differs.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import record

from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import RunnerConfig

sys.path.insert(0, str(record.ROOT / "tests"))

from support.models.checkpoints import random_checkpoint
from support.worker.alone import Alone, Compared
from support.worker.exact_rounds import SHAPE, SPLITS, Rounds
from support.worker.ranks import Ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.0, help="no round begins after them; the first always runs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of the first round")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-traffic-") as folder:
        model = random_checkpoint(Path(folder) / "model", seed=5, config=SHAPE)
        config = RunnerConfig(
            model, device=arguments.device, dtype="float32", threads=1, max_requests=32, kv_cache_bytes=16 << 20
        )
        sys.exit(run(config, arguments.seed, time.monotonic() + arguments.seconds))


def run(config: RunnerConfig, seed: int, end: float) -> int:
    """Exit code. end: by the monotonic clock."""
    splits = SPLITS if config.device == "cpu" else ((1, 1),)
    runners = {split: Ranks(config, *split) if config.device == "cpu" else open_runner(config) for split in splits}
    alone, total = Alone(open_runner(config)), Compared([])
    while True:
        rounds = Rounds(alone, SHAPE["vocab_size"])
        for (tensor, pipeline), runner in runners.items():
            found = rounds.run(runner, seed, tensor, pipeline, graphs=config.device == "cuda")
            print(f"seed {seed}, tensor {tensor}, pipeline {pipeline}: {found}", flush=True)
            total.add(found)
        if total.wrong or time.monotonic() >= end:
            break
        seed += 1
    print(*total.wrong, f"all: {total}", sep="\n")
    return 1 if total.wrong else 0


if __name__ == "__main__":
    main()
