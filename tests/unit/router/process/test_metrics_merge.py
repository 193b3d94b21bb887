"""Metrics of several processes are one: sums that a death does not lower."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from octavo.router.process.rules.metrics_merge import MergedMetrics, snapshot


def process(requests: int, open_now: int) -> bytes:
    registry = CollectorRegistry()
    counter = Counter("octavo_router_requests", "Answers", ("code",), registry=registry)
    counter.labels("200").inc(requests)
    Gauge("octavo_router_open_requests", "Open", registry=registry).set(open_now)
    histogram = Histogram("octavo_router_request_seconds", "Seconds", buckets=(1,), registry=registry)
    for _ in range(requests):
        histogram.observe(0.5)
    return snapshot(registry)


def lines(merged: MergedMetrics) -> list[str]:
    registry = CollectorRegistry()
    registry.register(merged)
    return generate_latest(registry).decode().splitlines()


def test_processes_are_summed() -> None:
    merged = MergedMetrics()
    merged.update(0, process(3, 1))
    merged.update(1, process(4, 2))
    merged.update(1, process(5, 2))
    text = lines(merged)
    assert 'octavo_router_requests_total{code="200"} 8.0' in text
    assert "octavo_router_open_requests 3.0" in text
    assert 'octavo_router_request_seconds_bucket{le="1.0"} 8.0' in text
    assert not any("_created" in line for line in text)


def test_a_dead_process_keeps_its_counts_and_loses_its_gauges() -> None:
    merged = MergedMetrics()
    for requests in (3, 4):
        merged.update(0, process(requests, 1))
        merged.end(0)
    merged.update(0, process(1, 1))
    text = lines(merged)
    assert 'octavo_router_requests_total{code="200"} 8.0' in text
    assert "octavo_router_open_requests 1.0" in text
