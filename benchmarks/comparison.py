"""Whether figures of two trees, taken by turns on one machine, differ by more than their noise. PURE.

Each figure has several runs in both trees. Its change is that of the medians; its noise is twice the standard error of
this change, from the spread of the runs on either side, so that one odd run does not hide a loss or make one up.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SPREAD = 1.4826  # a normal distribution's standard deviation, in median absolute deviations
_LEAST_NOISE = 0.002  # three runs may agree by chance


@dataclass(frozen=True, slots=True)
class Figure:
    """more_is_better: False of times. runs: one value each."""

    name: str
    unit: str
    more_is_better: bool
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """gain: share by which it is better, negative where worse. noise: share within which gains mean nothing."""

    name: str
    unit: str
    before: float
    now: float
    gain: float
    noise: float
    failed: bool


def compare(before: Figure, now: Figure, most_lost: float) -> Verdict:
    """failed: worse by more than most_lost (a share) and the noise together."""
    old, new = statistics.median(before.runs), statistics.median(now.runs)
    change = new / old - 1
    gain = change if now.more_is_better else old / new - 1
    noise = max(_LEAST_NOISE, 2 * math.hypot(_error(before.runs), _error(now.runs)))
    return Verdict(now.name, now.unit, old, new, gain, noise, gain < -(most_lost + noise))


def compare_all(before: Sequence[Figure], now: Sequence[Figure], most_lost: float) -> tuple[list[Verdict], list[str]]:
    """Verdicts on what both have, and the names of figures that only one has."""
    old, new = ({figure.name: figure for figure in side} for side in (before, now))
    both = [name for name in new if name in old]
    return [compare(old[name], new[name], most_lost) for name in both], sorted(old.keys() ^ new.keys())


def merged(turns: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Figures of several turns of one tree, each with the runs of all of them."""
    runs: dict[str, list[float]] = {}
    kinds: Mapping[str, Figure] = {figure.name: figure for turn in turns for figure in turn}
    for turn in turns:
        for figure in turn:
            runs.setdefault(figure.name, []).extend(figure.runs)
    return [Figure(name, kinds[name].unit, kinds[name].more_is_better, tuple(found)) for name, found in runs.items()]


def table(verdicts: Sequence[Verdict]) -> str:
    lines = [f"{'figure':24}{'before':>13}{'now':>13}{'gain':>9}{'noise':>8}"]
    for one in verdicts:
        numbers = f"{one.before:13,.1f}{one.now:13,.1f}{one.gain:+9.1%}{one.noise:8.1%}"
        lines.append(f"{one.name:24}{numbers}  {one.unit}{'  FAILED' if one.failed else ''}")
    return "\n".join(lines)


def _error(runs: Sequence[float]) -> float:
    """Standard error of the median, as a share of it; of one run nothing is known."""
    middle = statistics.median(runs)
    if len(runs) < 2:
        return math.inf
    deviation = _SPREAD * statistics.median(abs(run - middle) for run in runs)
    widest = (max(runs) - min(runs)) / 2
    return max(deviation, widest / 2) / middle / math.sqrt(len(runs))
