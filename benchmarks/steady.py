"""Steady streams beside long prompts: how much later a stream's next token comes while prompts of others arrive."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from report import percentile
from served import Sizes
from streams import Answer, Clients, Job

PROMPT, NEW = 128, 60_000  # of a steady stream; given up when the time is over
SETTLE_S = 2.0  # after the steady streams began: neither quiet nor loud
Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class SideBySide:
    """long: tokens of a long prompt, from and to. One arrives each every_s, for loud_s; quiet_s before, and after."""

    streams: int
    long: tuple[int, int]
    every_s: float
    quiet_s: float
    loud_s: float
    clients: int


def side_by_side(clients: Clients, sizes: Sizes, settings: SideBySide) -> Json:
    """Raises RuntimeError when a steady stream breaks."""
    source = random.Random(1)

    def ids(count: int) -> list[int]:
        return [source.randrange(sizes.vocabulary) for _ in range(count)]

    loud = SETTLE_S + settings.quiet_s
    end = loud + settings.loud_s
    over = end + settings.quiet_s  # for the prompts that came last
    steady = [Job(ids(PROMPT), min(NEW, sizes.context - PROMPT), 0.0, over) for _ in range(settings.streams)]
    arrivals = [loud + n * settings.every_s for n in range(int(settings.loud_s / settings.every_s))]
    prompts = [Job(ids(source.randint(*settings.long)), 1, at, over) for at in arrivals]
    answers = clients.run([*steady, *prompts])
    streams, longs = answers[: len(steady)], answers[len(steady) :]
    if failed := [answer for answer in streams if answer.error or not answer.frames_s]:
        raise RuntimeError(f"a steady stream broke: {failed[0].error or 'no token'}")
    return _figures(gaps(streams, SETTLE_S, loud), gaps(streams, loud, end), prompts, longs)


def gaps(answers: Sequence[Answer], begin_s: float, end_s: float) -> list[float]:
    """Seconds between tokens of which the later came within these times."""
    return [
        later - earlier
        for answer in answers
        for earlier, later in pairwise(answer.frames_s)
        if begin_s <= later < end_s
    ]


def _figures(quiet: list[float], loud: list[float], prompts: Sequence[Job], longs: Sequence[Answer]) -> Json:
    def ms(seconds: float) -> float:
        return round(1e3 * seconds, 2)

    done = [(job, answer) for job, answer in zip(prompts, longs, strict=True) if answer.complete]
    first = sorted(answer.frames_s[0] - answer.sent_s for _, answer in done)
    quiet_s, loud_s = percentile(quiet, 99), percentile(loud, 99)
    return {
        "quiet_p99_ms": ms(quiet_s), "loud_p99_ms": ms(loud_s), "times": round(loud_s / quiet_s, 2),
        "quiet_median_ms": ms(percentile(quiet, 50)), "loud_median_ms": ms(percentile(loud, 50)),
        "loud_max_ms": ms(max(loud)), "prompts": len(prompts), "prompts_answered": len(done),
        "prompt_tokens": sum(len(job.prompt) for job, _ in done),
        "first_token_median_s": round(percentile(first, 50), 2) if first else None,
    }  # fmt: skip
