"""Reconciles the services in the work queue while the Lease is held: several at once, each by one task at a time."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from octavo.operator.cluster.apply import WriteError
from octavo.operator.cluster.informers import Caches, service_key
from octavo.operator.cluster.kube import KubeError
from octavo.operator.cluster.lease import Lease
from octavo.operator.groups.groups import ready
from octavo.operator.metrics import Metrics
from octavo.operator.reconcile import PlanFailed
from octavo.operator.workqueue import WorkQueue

WORKERS = 16
RECONCILE_TIMEOUT_S = 60.0
RESYNC_S = (50.0, 70.0)
DRAIN_S = 5.0

log = logging.getLogger(__name__)
Reconcile = Callable[[str], Awaitable[float | None]]


class Controller:
    def __init__(self, queue: WorkQueue, lease: Lease, caches: Caches, reconcile: Reconcile, meter: Metrics) -> None:
        self._queue, self._lease, self._caches = queue, lease, caches
        self._reconcile, self._meter = reconcile, meter
        self._busy = 0

    async def run(self) -> None:
        """Wait for the Lease and reconcile while it is held, for ever."""
        await self._caches.wait_synced()
        while True:
            await self._lease.gained.wait()
            self._meter.leader.set(1)
            self._queue.forget_failures()  # from the last time this replica held the Lease
            for resource in self._caches.services():
                self._queue.add(service_key(resource))
            await self._work()
            self._meter.leader.set(0)

    async def drain(self) -> bool:
        """Start no reconcile, and wait for the running ones. False: not all ended within DRAIN_S."""
        self._queue.pause()
        end = time.monotonic() + DRAIN_S
        while self._busy and time.monotonic() < end:
            await asyncio.sleep(0.02)
        return not self._busy

    async def _work(self) -> None:
        workers = [asyncio.create_task(self._worker(), name=f"worker {i}") for i in range(WORKERS)]
        watchers = [asyncio.create_task(self._lease.lost.wait()), asyncio.create_task(self._gauge())]
        try:
            await asyncio.wait([*workers, watchers[0]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*workers, *watchers):
                task.cancel()
            await asyncio.gather(*workers, *watchers, return_exceptions=True)

    async def _worker(self) -> None:
        while True:
            key = await self._queue.take()
            self._busy += 1
            try:
                await self._once(key)
            except asyncio.CancelledError:
                self._queue.done(key)
                raise
            finally:
                self._busy -= 1

    async def _once(self, key: str) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT_S):
                requeue_after = await self._reconcile(key)
        except Exception as error:  # a fault of one service must not stop the others; it is logged and retried
            self._failed(key, error)
        else:
            self._queue.done(key)
            if self._exists(key):
                self._queue.add(
                    key, min(random.uniform(*RESYNC_S), RESYNC_S[1] if requeue_after is None else requeue_after)
                )
        finally:
            self._meter.reconcile_seconds.observe(time.monotonic() - started)

    def _failed(self, key: str, error: Exception) -> None:
        delay = self._queue.failed(key)
        self._meter.failures.labels(type(error).__name__).inc()
        if isinstance(error, PlanFailed) and error.is_termination:
            log.info("service %s: its namespace is being deleted", key)
            return
        expected = isinstance(error, KubeError | WriteError | PlanFailed | TimeoutError)
        shown = str(error) or type(error).__name__
        log.warning("service %s: retry in %.1f s: %s", key, delay, shown, exc_info=None if expected else error)

    def _exists(self, key: str) -> bool:
        namespace, name = key.split("/", 1)
        return self._caches.get("InferenceService", namespace, name) is not None

    async def _gauge(self) -> None:
        while True:
            serving = sum(ready(resource) for resource in self._caches.services())
            self._meter.services.labels("true").set(serving)
            self._meter.services.labels("false").set(len(self._caches.services()) - serving)
            self._meter.waiting.set(self._queue.waiting())
            await asyncio.sleep(5)
