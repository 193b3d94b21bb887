"""Load on `octavo run` while its processes are killed and stopped: `python benchmarks/soak_faults.py [--minutes 20]`.

Four configurations, one after another: a (2 groups, 2 router processes), b (2 groups of 2 stages of 2 ranks), c (16 MiB
of KV cache, which preempts), d (c without a prefix cache). Clients of many kinds ask over shared prefixes; each answer
is compared with one that transformers and the engine gave apart from the service. A seeded loop makes faults meanwhile.
Afterwards the service must hold no more than before, answer 100 requests, and leave nothing at Ctrl-C. Exits with 1
if anything was wrong. As root it uses mounts of its own, to fill its TMPDIR and /dev/shm as well.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

import record

sys.path.insert(0, str(record.ROOT / "tests"))

from support.soak import report
from support.soak.asks import WEIGHTS, Subject
from support.soak.configurations import CONFIGURATIONS
from support.soak.fault_plan import KINDS, FaultKind, kinds_of
from support.soak.model import soak_checkpoint
from support.soak.places import isolate, prepared
from support.soak.prompts import prompts
from support.soak.soak import FINAL, Outcome, Settings, soak
from support.soak.truth import kept

PROMPTS, PROMPT_SEED = 24, 1


def _weights(text: str) -> dict[str, int]:
    """`greedy=3,drawn=1`: of no other kind."""
    pairs = [part.partition("=") for part in text.split(",")]
    if unknown := {name for name, _, _ in pairs} - set(WEIGHTS):
        raise argparse.ArgumentTypeError(f"no such kind of request: {', '.join(sorted(unknown))}")
    return {name: int(weight) for name, _, weight in pairs}


def _faults(text: str) -> list[FaultKind]:
    try:
        return kinds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pair(text: str) -> tuple[float, float]:
    low, high = (float(part) for part in text.split(","))
    return low, high


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="*", choices=CONFIGURATIONS, default=[*CONFIGURATIONS], help="default: all")
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--minutes", type=float, default=20.0, help="of faults, each (default: %(default)s)")
    time.add_argument("--seconds", type=float, help="the same in seconds")
    parser.add_argument("--seed", type=int, help="of requests and faults (default: drawn, and printed)")
    parser.add_argument(
        "--faults", type=kinds_of, default=KINDS, help="only these: 'KILL core,STOP rank,burst'; '' none"
    )
    parser.add_argument("--pause", type=_pair, default=(2.0, 15.0), help="seconds between faults: LOW,HIGH")
    parser.add_argument("--weights", type=_weights, default=WEIGHTS, help="of requests: 'greedy=3,drawn=1'")
    parser.add_argument("--clients", type=int, help="default: the configuration's")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help="default: %(default)s")
    parser.add_argument("--final", type=int, default=FINAL, help="requests after the faults (default: %(default)s)")
    parser.add_argument("--patient", action="store_true", help="no answer is late by seconds of a machine too busy")
    parser.add_argument("--truth", type=Path, help="JSON of right answers: read if it is there, else written")
    parser.add_argument("--records", type=Path, help="folder for each request, each fault and the service's log")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "soak-faults-cpu.json")
    return parser.parse_args()


def main() -> None:
    flags = _flags()
    seed = flags.seed if flags.seed is not None else random.SystemRandom().randrange(10**6)
    seconds = flags.seconds if flags.seconds is not None else 60 * flags.minutes
    asked = prompts(flags.prompts, PROMPT_SEED)
    failed = []
    with (
        tempfile.TemporaryDirectory() as folder,
        record.Found(flags.out, record.machine(["torch", "aiohttp"])) as found,
    ):
        model = soak_checkpoint(Path(folder) / "model")
        known = kept(flags.truth, model, asked)
        private = isolate()
        for index, name in enumerate(flags.config):
            one = CONFIGURATIONS[name]
            settings = Settings(
                one, seed + index, seconds, flags.faults, flags.weights, flags.clients or one.clients, flags.pause,
                flags.patient, flags.final,
            )  # fmt: skip
            print(f"configuration {name}: {one.title}; seed {settings.seed}, {seconds:.0f} s", flush=True)
            subject = Subject(tuple(asked), tuple(known), one.caching)
            outcome = Outcome()
            try:
                with prepared(Path(folder) / name, private) as places:
                    soak(settings, model, places, subject, outcome)
            finally:
                figures = report.figures(settings, outcome)
                print("\n".join(report.lines(figures)), flush=True)
                found.put(name, figures)
                if flags.records is not None:
                    report.keep(flags.records / name, outcome)
            if not report.passed(outcome):
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
