"""What a serving benchmark says of its streams, in the words and the layout that vLLM's has. No clock, no network."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH = 50


@dataclass(frozen=True, slots=True)
class Finished:
    """One request that was answered in full: seconds from its sending to each frame that had tokens."""

    prompt_tokens: int
    tokens: int
    frames_s: Sequence[float]

    @property
    def first_s(self) -> float:
        return self.frames_s[0]

    @property
    def per_token_s(self) -> float | None:
        """Without the first token; None when there is no other."""
        return (self.frames_s[-1] - self.frames_s[0]) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.frames_s)]


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds."""

    mean: float
    median: float
    p99: float


@dataclass(frozen=True, slots=True)
class Report:
    successful: int
    failed: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    first_token: Spread
    per_token: Spread
    between_tokens: Spread

    @property
    def output_tok_s(self) -> float:
        return self.output_tokens / self.duration_s

    def __str__(self) -> str:
        """The block that vLLM's benchmark prints."""
        counts = [
            ("Successful requests:", f"{self.successful:<10}"),
            ("Failed requests:", f"{self.failed:<10}"),
            ("Benchmark duration (s):", f"{self.duration_s:<10.2f}"),
            ("Total input tokens:", f"{self.input_tokens:<10}"),
            ("Total generated tokens:", f"{self.output_tokens:<10}"),
            ("Request throughput (req/s):", f"{self.successful / self.duration_s:<10.2f}"),
            ("Output token throughput (tok/s):", f"{self.output_tok_s:<10.2f}"),
            ("Total Token throughput (tok/s):", f"{(self.input_tokens + self.output_tokens) / self.duration_s:<10.2f}"),
        ]
        lines = [
            f"{' Serving Benchmark Result ':=^{WIDTH}}",
            *(f"{name:<40} {value}".rstrip() for name, value in counts),
        ]
        for title, short, spread in (
            ("Time to First Token", "TTFT", self.first_token),
            ("Time per Output Token (excl. 1st token)", "TPOT", self.per_token),
            ("Inter-token Latency", "ITL", self.between_tokens),
        ):
            lines.append(f"{title:-^{WIDTH}}")
            for name, value in (("Mean", spread.mean), ("Median", spread.median), ("P99", spread.p99)):
                lines.append(f"{f'{name} {short} (ms):':<40} {value:.2f}")
        return "\n".join([*lines, "=" * WIDTH])


def report(finished: Sequence[Finished], failed: int, duration_s: float) -> Report:
    return Report(
        successful=len(finished),
        failed=failed,
        duration_s=duration_s,
        input_tokens=sum(one.prompt_tokens for one in finished),
        output_tokens=sum(one.tokens for one in finished),
        first_token=spread([one.first_s for one in finished]),
        per_token=spread([value for one in finished if (value := one.per_token_s) is not None]),
        between_tokens=spread([gap for one in finished for gap in one.gaps_s]),
    )


def spread(seconds: Sequence[float]) -> Spread:
    if not seconds:
        return Spread(0.0, 0.0, 0.0)
    return Spread(1e3 * statistics.fmean(seconds), 1e3 * statistics.median(seconds), 1e3 * percentile(seconds, 99))


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest, in proportion, as numpy does it."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
