"""What Prometheus reads: the core's counters from the board, kept over the incarnations of the group.

An incarnation's counters begin at zero; the earlier ones' are added, so that a counter never falls.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from octavo.proto.v1 import group_pb2
from octavo.worker.ipc.shared_board import Gauge
from octavo.worker.membership.status import GroupState
from octavo.worker.supervisor.pages import Page

_GAUGES = {
    "octavo_worker_requests_running": (Gauge.RUNNING, "Requests that hold a row of the device."),
    "octavo_worker_requests_waiting": (Gauge.WAITING, "Requests accepted and not yet running."),
    "octavo_worker_kv_blocks_total": (Gauge.BLOCKS_TOTAL_SIZE, "Blocks of the KV cache."),
    "octavo_worker_kv_blocks_cached": (Gauge.BLOCKS_CACHED, "Unused blocks whose contents can still be reused."),
}
_COUNTERS = {
    "octavo_worker_requests": (Gauge.REQUESTS_TOTAL, 1, "Requests accepted by the engine."),
    "octavo_worker_requests_cancelled": (Gauge.CANCELLED_TOTAL, 1, "Requests that their router gave up."),
    "octavo_worker_prompt_tokens": (Gauge.PROMPT_TOKENS_TOTAL, 1, "Prompt tokens of accepted requests."),
    "octavo_worker_generated_tokens": (Gauge.GENERATED_TOKENS_TOTAL, 1, "Tokens sent to routers."),
    "octavo_worker_preemptions": (Gauge.PREEMPTIONS_TOTAL, 1, "Requests that gave up their blocks for others."),
    "octavo_worker_prefix_hit_tokens": (Gauge.PREFIX_HIT_TOKENS_TOTAL, 1, "Prompt tokens found in the prefix cache."),
    "octavo_worker_steps": (Gauge.STEPS_TOTAL, 1, "Steps finished, including steps of an idle group."),
    "octavo_worker_invalid_steps": (
        Gauge.INVALID_STEPS_TOTAL,
        1,
        "Steps that the scheduler must not issue: their requests failed. Anything but 0 is a bug.",
    ),
    "octavo_worker_stale_incarnation_messages": (
        Gauge.LATE_TOTAL,
        1,
        "Messages of an earlier incarnation, which the group refused.",
    ),
    "octavo_worker_step_seconds": (Gauge.STEP_NANOSECONDS_TOTAL, 1e-9, "Time in which steps were under way."),
}


class Totals:
    """Counters of all incarnations. current: the gauges of the running one, or None."""

    def __init__(self) -> None:
        self._before: dict[Gauge, int] = {}
        self.current: Callable[[], dict[Gauge, int]] | None = None

    def end_incarnation(self) -> None:
        """Keep what the running incarnation has counted."""
        for gauge, value in (self.current() if self.current else {}).items():
            if gauge.name.endswith("_TOTAL"):
                self._before[gauge] = self._before.get(gauge, 0) + value
        self.current = None

    def read(self) -> dict[Gauge, int]:
        now = self.current() if self.current else dict.fromkeys(Gauge, 0)
        return {gauge: now[gauge] + self._before.get(gauge, 0) for gauge in Gauge}


class _WorkerCollector(Collector):
    def __init__(self, totals: Totals, state: GroupState) -> None:
        self._totals = totals
        self._state = state

    def collect(self) -> Iterator[Metric]:
        values = self._totals.read()
        for name, (gauge, text) in _GAUGES.items():
            yield GaugeMetricFamily(name, text, value=values[gauge])
        used = values[Gauge.BLOCKS_TOTAL_SIZE] - values[Gauge.BLOCKS_FREE]
        yield GaugeMetricFamily("octavo_worker_kv_blocks_used", "Blocks that requests hold.", value=used)
        for name, (gauge, scale, text) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=values[gauge] * scale)
        yield CounterMetricFamily(
            "octavo_worker_restarts", "Incarnations of the group that ended by a failure.", value=self._state.restarts
        )
        serving = float(self._state.phase == group_pb2.SERVING)
        yield GaugeMetricFamily("octavo_worker_serving", "1 while the group serves.", value=serving)
        asleep = float(self._state.phase == group_pb2.ASLEEP)
        yield GaugeMetricFamily("octavo_worker_asleep", "1 while the group sleeps.", value=asleep)


def metrics_page(totals: Totals, state: GroupState) -> Callable[[], Page]:
    """/metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_WorkerCollector(totals, state))
    return lambda: Page(200, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
