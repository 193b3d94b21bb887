"""The metrics of one router process. Labels come from fixed sets: no client text becomes one."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.router.answers.tally import Tally

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
CLIENT_GONE = "499"  # as in nginx
CUT = "cut"  # a stream that ended with an error event

MetricReading = tuple[str, str, bool, float]  # name, help, is a counter, value


class RouterMetrics:
    """Metrics counted by the frontend, and sources that are read at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.tally = Tally()
        self.requests = Counter(
            "octavo_router_requests",
            "Answers, by endpoint and code: an HTTP status, 499 (client gone), cut (failed after the first token)",
            ("endpoint", "code"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "octavo_router_request_seconds",
            "From a request's body to its last byte; successes only",
            ("endpoint",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first_token = Histogram(
            "octavo_router_first_token_seconds",
            "From a request's body to its first token",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.connections = Gauge("octavo_router_connections", "HTTP connections of clients", registry=self.registry)
        self.open = Gauge("octavo_router_open_requests", "Requests being answered", registry=self.registry)
        self._counters: dict[
            tuple[str, str], Counter
        ] = {}  # by endpoint and code, and by endpoint: labels() costs more
        self._histograms: dict[str, Histogram] = {}  # than what is counted
        self.read_from(self._tallied)

    def count(self, endpoint: str, code: str) -> None:
        """An answer."""
        if (counter := self._counters.get((endpoint, code))) is None:
            counter = self._counters[endpoint, code] = self.requests.labels(endpoint, code)
        counter.inc()

    def observe(self, endpoint: str, seconds: float) -> None:
        """A success."""
        if (histogram := self._histograms.get(endpoint)) is None:
            histogram = self._histograms[endpoint] = self.seconds.labels(endpoint)
        histogram.observe(seconds)

    def read_from(self, source: Callable[[], Iterable[MetricReading]]) -> None:
        self.registry.register(_Source(source))

    def _tallied(self) -> Iterator[MetricReading]:
        tally = self.tally
        yield "octavo_router_prompt_tokens", "Prompt tokens sent to groups", True, tally.prompt_tokens
        yield "octavo_router_completion_tokens", "Tokens received from groups", True, tally.completion_tokens
        yield "octavo_router_cached_tokens", "Prompt tokens that groups had cached", True, tally.cached_tokens
        yield (
            "octavo_router_retokenised_requests",
            "Requests tokenised again, for another model",
            True,
            tally.retokenised,
        )
        yield "octavo_router_merged_writes", "Pieces held back for slow clients", True, tally.merged_writes


class _Source(Collector):
    def __init__(self, source: Callable[[], Iterable[MetricReading]]) -> None:
        self._source = source

    def describe(self) -> list[Metric]:
        return []  # not asked for when registered: values may not exist yet

    def collect(self) -> Iterator[Metric]:
        for name, text, is_counter, value in self._source():
            family = CounterMetricFamily if is_counter else GaugeMetricFamily
            yield family(name, text, value=value)
