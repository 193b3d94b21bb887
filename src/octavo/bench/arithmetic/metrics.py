"""From the times of each answer to the figures, by vLLM's definitions. No clock, no network.

    sent        1st chunk   chunk   chunk            last chunk
     |---- TTFT ----|- ITL -|- ITL -|--- ... --- ITL ----|
     |----------------------- E2EL ----------------------|        TPOT = (E2EL - TTFT) / (output tokens - 1)

ITL is between chunks: one that carries several tokens counts once. TPOT is 0 for goodput, and counted nowhere else,
where there is only one token.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

NAMES = ("ttft", "tpot", "itl", "e2el")
GOODPUT_NAMES = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request; seconds. start_s: from the beginning of the run. error: "" for a complete answer.

    prompt_tokens: by the server, else by the dataset. A failed answer keeps what had come.
    """

    start_s: float
    queued_s: float = 0.0
    ttft_s: float = 0.0
    gaps_s: tuple[float, ...] = ()
    latency_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    text: str = ""
    error: str = ""

    @property
    def tpot_s(self) -> float | None:
        """None where no token follows the first."""
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def end_s(self) -> float:
        return self.start_s + self.latency_s


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds. std: of the whole population. percentiles: asked share (0 to 100) -> value."""

    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Metrics:
    """goodput: requests a second within all their objectives; None where none were given. peak_tok_s: chunks in the
    fullest second of the run, counted from the first request."""

    completed: int
    failed: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    goodput: float | None
    peak_tok_s: float
    peak_requests: int
    spreads: Mapping[str, Spread]

    @property
    def requests_s(self) -> float:
        return self.completed / self.duration_s

    @property
    def output_tok_s(self) -> float:
        return self.output_tokens / self.duration_s

    @property
    def total_tok_s(self) -> float:
        return (self.input_tokens + self.output_tokens) / self.duration_s


def measure(
    answers: Sequence[Answer], duration_s: float, shares: Sequence[float], objectives: Mapping[str, float]
) -> Metrics:
    """objectives: of goodput, name -> milliseconds. duration_s above 0."""
    complete = [answer for answer in answers if not answer.error]
    series = samples(complete)
    good = sum(is_good(answer, objectives) for answer in complete)
    return Metrics(
        completed=len(complete),
        failed=len(answers) - len(complete),
        duration_s=duration_s,
        input_tokens=sum(answer.prompt_tokens for answer in complete),
        output_tokens=sum(answer.output_tokens for answer in complete),
        goodput=good / duration_s if objectives else None,
        peak_tok_s=float(fullest_second(complete)),
        peak_requests=most_at_once((answer.start_s, answer.end_s) for answer in complete),
        spreads={name: spread(values, shares) for name, values in series.items()},
    )


def counted(answer: Answer, count: Callable[[str], int] | None) -> Answer:
    """The answer with output_tokens, which is estimated if the server sent no usage: from the text, else the chunks."""
    if answer.output_tokens or answer.error:
        return answer
    tokens = count(answer.text) if count is not None else len(answer.gaps_s) + 1
    return replace(answer, output_tokens=tokens)


def samples(complete: Sequence[Answer]) -> dict[str, list[float]]:
    """The values of each metric, in seconds; ITL has the gaps of all requests."""
    return {
        "ttft": [answer.ttft_s for answer in complete],
        "tpot": [value for answer in complete if (value := answer.tpot_s) is not None],
        "itl": [gap for answer in complete for gap in answer.gaps_s],
        "e2el": [answer.latency_s for answer in complete],
    }


def is_good(answer: Answer, objectives: Mapping[str, float]) -> bool:
    """Every objective is met; milliseconds."""
    values = {"ttft": answer.ttft_s, "tpot": answer.tpot_s or 0.0, "e2el": answer.latency_s}
    return all(1e3 * values[name] <= limit for name, limit in objectives.items())


def spread(seconds: Sequence[float], shares: Sequence[float]) -> Spread:
    """All zeros where nothing was measured."""
    if not seconds:
        return Spread(0.0, 0.0, 0.0, dict.fromkeys(shares, 0.0))
    return Spread(
        1e3 * statistics.fmean(seconds),
        1e3 * statistics.median(seconds),
        1e3 * statistics.pstdev(seconds),
        {share: 1e3 * value for share, value in zip(shares, percentiles(seconds, shares), strict=True)},
    )


def percentiles(values: Sequence[float], shares: Iterable[float]) -> list[float]:
    """Between the two nearest values, in proportion, as numpy does it by default. values: at least one."""
    ordered = sorted(values)
    return [_at((len(ordered) - 1) * share / 100, ordered) for share in shares]


def _at(place: float, ordered: Sequence[float]) -> float:
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Spans are half open: one that begins where another ends does not meet it."""
    turns = sorted(turn for begin, end in spans for turn in ((begin, 1), (end, -1)))
    return max(accumulate(change for _, change in turns), default=0)


def fullest_second(complete: Sequence[Answer]) -> int:
    """Most chunks that arrived in one of the seconds since the first request was sent."""
    begin = min((answer.start_s for answer in complete), default=0.0)
    counts: dict[int, int] = {}
    for answer in complete:
        for at in accumulate(answer.gaps_s, initial=answer.start_s + answer.ttft_s):
            second = int(at - begin)
            counts[second] = counts.get(second, 0) + 1
    return max(counts.values(), default=0)
