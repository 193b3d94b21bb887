"""The operator's Prometheus metrics, in their own registry."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "octavo_operator_reconcile_seconds",
            "Duration of one reconcile of one service.",
            buckets=SECONDS,
            registry=registry,
        )
        self.failures = Counter(
            "octavo_operator_reconcile_failures_total",
            "Reconciles that failed and are retried.",
            ["reason"],
            registry=registry,
        )
        self.writes = Counter(
            "octavo_operator_writes_total",
            "Writes to the Kubernetes API.",
            ["verb", "kind"],
            registry=registry,
        )
        self.postponed = Counter(
            "octavo_operator_postponed_writes_total",
            "Writes that were put off, since others change the object back, or it was written too often.",
            ["kind"],
            registry=registry,
        )
        self.waiting = Gauge(
            "octavo_operator_queue_waiting", "Services that are due for a reconcile.", registry=registry
        )
        self.leader = Gauge("octavo_operator_leader", "1 while this replica holds the Lease.", registry=registry)
        self.other_namespaces = Gauge(
            "octavo_operator_namespaces_of_others",
            "Namespaces with services whose Lease another operator holds, or that may not be taken.",
            registry=registry,
        )
        self.services = Gauge("octavo_operator_services", "Services by readiness.", ["ready"], registry=registry)
        self.silence = Gauge(
            "octavo_operator_watch_silence_seconds",
            "Longest time since the last event or bookmark of any watch.",
            registry=registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
