"""A run's figures as the block that vLLM's benchmark prints, and as the object that it saves, key by key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.arithmetic.metrics import Answer, Metrics

WIDTH = 50
BUSY, BUSY_AFTER_S = 0.8, 1.0  # a core's share from which a client may be what limits; a shorter run says little
TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked of the run. request_rate: requests a second, inf: all at once."""

    request_rate: float
    burstiness: float
    max_concurrency: int | None


def block(metrics: Metrics, load: Load, shown: Sequence[str]) -> str:
    """shown: the metrics that have a section."""
    lines = [f"{' Serving Benchmark Result ':=^{WIDTH}}"]
    lines += [_line(name, value) for name, value in _rows(metrics, load)]
    for name in (name for name in TITLES if name in shown):
        short, spread = name.upper(), metrics.spreads[name]
        lines.append(f"{TITLES[name]:-^{WIDTH}}")
        lines += [_line(f"Mean {short} (ms):", spread.mean), _line(f"Median {short} (ms):", spread.median)]
        lines += [_line(f"P{word(share)} {short} (ms):", value) for share, value in spread.percentiles.items()]
    return "\n".join([*lines, "=" * WIDTH])


def _rows(metrics: Metrics, load: Load) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = [
        ("Successful requests:", metrics.completed),
        ("Failed requests:", metrics.failed),
    ]
    if load.max_concurrency is not None:
        rows.append(("Maximum request concurrency:", load.max_concurrency))
    if load.request_rate != float("inf"):
        rows.append(("Request rate configured (RPS):", float(load.request_rate)))
    rows += [
        ("Benchmark duration (s):", metrics.duration_s),
        ("Total input tokens:", metrics.input_tokens),
        ("Total generated tokens:", metrics.output_tokens),
        ("Request throughput (req/s):", metrics.requests_s),
    ]
    if metrics.goodput is not None:
        rows.append(("Request goodput (req/s):", metrics.goodput))
    return [
        *rows,
        ("Output token throughput (tok/s):", metrics.output_tok_s),
        ("Peak output token throughput (tok/s):", metrics.peak_tok_s),
        ("Peak concurrent requests:", float(metrics.peak_requests)),
        ("Total token throughput (tok/s):", metrics.total_tok_s),
    ]


def _line(name: str, value: float) -> str:
    return f"{name:<40} {value:.2f}" if isinstance(value, float) else f"{name:<40} {value}"


def word(share: float) -> str:
    """99 for 99.0, 99.9 for 99.9."""
    return str(int(share)) if share == int(share) else str(share)


def result(metrics: Metrics, load: Load, shown: Sequence[str]) -> Json:
    """The figures; `details` has what each request adds."""
    rate = load.request_rate
    figures: Json = {
        "request_rate": "inf" if rate == float("inf") else rate,
        "burstiness": "inf" if load.burstiness == float("inf") else load.burstiness,
        "max_concurrency": load.max_concurrency,
        "duration": metrics.duration_s,
        "completed": metrics.completed,
        "failed": metrics.failed,
        "total_input_tokens": metrics.input_tokens,
        "total_output_tokens": metrics.output_tokens,
        "request_throughput": metrics.requests_s,
        "request_goodput": metrics.goodput,
        "output_throughput": metrics.output_tok_s,
        "total_token_throughput": metrics.total_tok_s,
        "max_output_tokens_per_s": metrics.peak_tok_s,
        "max_concurrent_requests": metrics.peak_requests,
    }
    for name in (name for name in TITLES if name in shown):
        spread = metrics.spreads[name]
        figures |= {f"mean_{name}_ms": spread.mean, f"median_{name}_ms": spread.median, f"std_{name}_ms": spread.std}
        figures |= {f"p{word(share)}_{name}_ms": value for share, value in spread.percentiles.items()}
    return figures


def details(answers: Sequence[Answer]) -> Json:
    """One entry a request, in the order of their sending; seconds."""
    return {
        "input_lens": [answer.prompt_tokens for answer in answers],
        "output_lens": [0 if answer.error else answer.output_tokens for answer in answers],
        "ttfts": [answer.ttft_s for answer in answers],
        "itls": [list(answer.gaps_s) for answer in answers],
        "latencies": [answer.latency_s for answer in answers],
        "start_times": [answer.start_s for answer in answers],
        "queue_times": [answer.queued_s for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [answer.error for answer in answers],
    }


def failures(answers: Sequence[Answer]) -> str:
    """One line: how many failed and the first reason; "" when none did."""
    errors = [answer.error for answer in answers if answer.error]
    return f"{len(errors)} of {len(answers)} requests failed; the first: {errors[0]}" if errors else ""


def busy(cpu_s: float, duration_s: float) -> str:
    """One line where the client itself may have been too slow for the server; else ""."""
    share = cpu_s / duration_s
    if duration_s < BUSY_AFTER_S or share < BUSY:
        return ""
    return f"this client kept a core busy for {share:.0%} of the run: the server may be faster than is shown"
