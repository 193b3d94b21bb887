"""What the scheduler makes of a load, on a simulated device: `python benchmarks/goodput.py [LOAD ...] [--interval MS]`.

The scheduler is the real one; a step takes as long as it would on an H200 with an 8B model, on a simulated clock. So
a policy can be judged in seconds and without a GPU: run it in two trees and compare.

    s, tok/s         from the first arrival to the last token
    TTFT p50, p99    seconds to the first token, all requests of the load
    ITL p50, p99     milliseconds between two tokens of a request; of `steady` of its streams, beside long prompts
    in time          share of the output tokens that came when they were due: a request's first after a second and
                     twice what the device takes for its prompt alone, each other 50 ms later than the one before
"""

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import record
from report import percentile
from simulation import Arrival, Seen, Simulation, alone_s
from steady import NEW, PROMPT, SETTLE_S

FIRST_S, READS, GAP_S = 1.0, 2.0, 0.05  # of `in time`
QUIET_S, LOUD_S = 6.0, 15.0  # of `steady`, as serve.py has them by default


def at_once(requests: int, prompt: int, new: int, within_s: float = 0.1) -> list[Arrival]:
    """All together: over HTTP they take a moment to arrive."""
    return [Arrival(within_s * turn / requests, prompt, new) for turn in range(requests)]


def in_turn(streams: int, prompt: int, new: int, turns: int = 4) -> list[Arrival]:
    """Each of so many clients sends its next request when its last has ended; answers are of half to one and a half
    times the length, so that they do not end together."""
    rng = random.Random(1)
    made = at_once(streams, prompt, 0)
    made = [Arrival(one.at_s, prompt, rng.randint(new // 2, new + new // 2)) for one in made]
    while len(made) < streams * turns:
        made.append(Arrival(0.0, prompt, rng.randint(new // 2, new + new // 2), len(made) - streams))
    return made


def by_chance(per_s: float, seconds: float, prompts: Sequence[int], new: int) -> list[Arrival]:
    """At random times, so many a second: what users do."""
    rng, at, made = random.Random(2), 0.0, list[Arrival]()
    while (at := at + rng.expovariate(per_s)) < seconds:
        made.append(Arrival(at, rng.choice(prompts), rng.randint(new // 2, new + new // 2)))
    return made


def steady() -> list[Arrival]:
    """16 streams, and a prompt of 8,000 to 32,000 tokens a second: serve.py --steady."""
    rng, loud = random.Random(1), SETTLE_S + QUIET_S
    over = loud + LOUD_S + QUIET_S
    streams = [Arrival(0.0, PROMPT, NEW, until_s=over) for _ in range(16)]
    longs = [Arrival(loud + turn, rng.randint(8000, 32_000), 1, until_s=over) for turn in range(int(LOUD_S))]
    return [*streams, *longs]


CHAT = (200, 500, 500, 1000, 2000, 4000, 16_000)
LOADS: dict[str, tuple[Callable[[], list[Arrival]], int]] = {  # and requests at once
    "64 x 2048/2048": (lambda: at_once(64, 2048, 2048), 256),
    "64 x 2500/1024": (lambda: at_once(64, 2500, 1024), 256),
    "8 x 32768/256": (lambda: at_once(8, 32_768, 256, 0.0), 256),
    "1 x 120000/128": (lambda: at_once(1, 120_000, 128), 256),
    "512 x 128/256": (lambda: at_once(512, 128, 256, 0.0), 256),
    "512 x 128/256, all": (lambda: at_once(512, 128, 256, 0.0), 512),
    "steady": (steady, 256),
    "128: 1024/128": (lambda: in_turn(128, 1024, 128), 256),
    "64: 2048/1024": (lambda: in_turn(64, 2048, 1024, 3), 256),
    "64: 8192/512": (lambda: in_turn(64, 8192, 512, 3), 256),
    "chat, 60 %": (lambda: by_chance(4.0, 60.0, CHAT, 300), 256),
    "chat, 85 %": (lambda: by_chance(6.0, 60.0, CHAT, 300), 256),
    "long, 70 %": (lambda: by_chance(1.0, 60.0, (8000, 16_000, 32_000), 400), 256),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """As in the module's text; seconds but for the gaps, which are milliseconds."""

    load: str
    s: float
    out_tok_s: float
    first_p50_s: float
    first_p99_s: float
    gap_p50_ms: float
    gap_p99_ms: float
    in_time: float


def figures(name: str, interval_s: float | None = None) -> Figures:
    make, max_requests = LOADS[name]
    arrivals = make()
    simulation = Simulation(arrivals, max_requests, interval_s)
    seconds = simulation.run()
    answered = [(one, seen) for one, seen in zip(arrivals, simulation.seen, strict=True) if seen.tokens_s]
    first = [seen.first_s for one, seen in answered if one.new_tokens < NEW]
    tokens = sum(len(seen.tokens_s) for _, seen in answered)
    gaps = list(_gaps(name, simulation.seen))
    return Figures(
        name, round(seconds, 2), round(tokens / seconds, 1), round(statistics.median(first), 3),
        round(percentile(first, 99), 3), round(1e3 * percentile(gaps, 50), 2), round(1e3 * percentile(gaps, 99), 2),
        round(sum(map(_in_time, *zip(*answered, strict=True))) / tokens, 3),
    )  # fmt: skip


def _gaps(name: str, seen: Sequence[Seen]) -> Iterator[float]:
    if name != "steady":
        for one in seen:
            yield from one.gaps_s
        return
    begin = SETTLE_S + QUIET_S
    for one in seen[:16]:
        yield from (b - a for a, b in pairwise(one.tokens_s) if begin <= b < begin + LOUD_S)


def _in_time(one: Arrival, seen: Seen) -> int:
    due_s = seen.sent_s + FIRST_S + READS * alone_s(one.prompt)
    return sum(at <= due_s + GAP_S * token for token, at in enumerate(seen.tokens_s))


NAMES = "; ".join(LOADS)
HEADER = f"{'load':20}{'s':>8}{'tok/s':>9}{'TTFT p50':>11}{'p99':>8}{'ITL p50':>9}{'p99':>8}{'in time':>9}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {NAMES} (default: all)".replace("%", "%%"))
    parser.add_argument("--interval", type=float, metavar="MS", help="engine.tokenInterval; default: as it is unset")
    parser.add_argument("--out", type=Path, help="JSON")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.loads if name not in LOADS]:
        parser.error(f"{unknown[0]!r} is no load; there are {NAMES}")
    interval_s = None if arguments.interval is None else arguments.interval / 1e3
    found = []
    print(HEADER)
    for name in arguments.loads or LOADS:
        row = figures(name, interval_s)
        found.append(row)
        print(
            f"{row.load:20}{row.s:8.2f}{row.out_tok_s:9,.0f}{row.first_p50_s:11.3f}{row.first_p99_s:8.3f}"
            f"{row.gap_p50_ms:9.2f}{row.gap_p99_ms:8.2f}{row.in_time:9.1%}",
            flush=True,
        )
    if arguments.out is not None:
        record.write(arguments.out, record.machine(), [asdict(row) for row in found])


if __name__ == "__main__":
    main()
