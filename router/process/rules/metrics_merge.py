"""Metrics of several processes as one: each sends its samples as JSON, the parent adds them up.

Counters and histograms of a process that ended stay in the sums; its gauges go with it.
"""

from collections.abc import Iterable, Iterator

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

MetricFamily = list[object]  # [name, type, help, [[sample, labels, value], ...]]


def snapshot(registry: CollectorRegistry) -> bytes:
    """One line. Creation times are left out: their sums mean nothing."""
    families = []
    for metric in registry.collect():
        samples = [[s.name, s.labels, s.value] for s in metric.samples if not s.name.endswith("_created")]
        families.append([metric.name, metric.type, metric.documentation, samples])
    return orjson.dumps(families)


class MergedMetrics(Collector):
    """alive: the latest snapshot of each process by its key; ended: sums of processes that have ended."""

    def __init__(self) -> None:
        self._alive: dict[int, list[MetricFamily]] = {}
        self._ended: dict[str, Metric] = {}

    def update(self, process: int, line: bytes) -> None:
        self._alive[process] = orjson.loads(line)

    def end(self, process: int) -> None:
        """Fold its totals into the sums."""
        lasting = [family for family in self._alive.pop(process, []) if family[1] != "gauge"]
        self._ended = add([*_families(self._ended.values()), *lasting])

    def collect(self) -> Iterator[Metric]:
        families = [family for families in self._alive.values() for family in families]
        yield from add([*_families(self._ended.values()), *families]).values()


def add(families: Iterable[MetricFamily]) -> dict[str, Metric]:
    """Sum samples of the same name and labels."""
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    metrics: dict[str, Metric] = {}
    for name, kind, text, samples in families:
        assert isinstance(name, str) and isinstance(kind, str) and isinstance(text, str) and isinstance(samples, list)
        metrics.setdefault(name, Metric(name, text, kind))
        sum_of = sums.setdefault(name, {})
        for sample, labels, value in samples:
            key = (sample, tuple(labels.items()))
            sum_of[key] = sum_of.get(key, 0.0) + value
    for name, metric in metrics.items():
        for (sample, labels), value in sums[name].items():
            metric.add_sample(sample, dict(labels), value)
    return metrics


def _families(metrics: Iterable[Metric]) -> list[MetricFamily]:
    return [[m.name, m.type, m.documentation, [[s.name, s.labels, s.value] for s in m.samples]] for m in metrics]
