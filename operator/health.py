"""`/livez` and `/readyz` for the kubelet, `/metrics` for Prometheus.

Live: the event loop responds, and every watch has received an event or a bookmark within SILENCE_LIMIT_S.
Ready: the caches are filled, but for the kinds that the API server refuses to list.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from octavo.operator.cluster.informers import Caches
from octavo.operator.metrics import Metrics

SILENCE_LIMIT_S = 180.0
Address = tuple[str, int]
Probe = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving(health: Address, metrics: Address, caches: Caches, meter: Metrics) -> AsyncIterator[None]:
    """Run both servers until the context ends."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_server(health, {"/livez": _live(caches), "/readyz": _ready(caches)}))
        await stack.enter_async_context(_server(metrics, {"/metrics": _metrics(caches, meter)}))
        yield


@asynccontextmanager
async def _server(address: Address, probes: dict[str, Probe]) -> AsyncIterator[None]:
    app = web.Application()
    for path, probe in probes.items():
        app.router.add_get(path, probe)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, *address).start()
        yield
    finally:
        await runner.cleanup()


def _live(caches: Caches) -> Probe:
    async def live(_: web.Request) -> web.Response:
        silent = caches.silent_s()
        if silent > SILENCE_LIMIT_S:
            return web.Response(status=503, text=f"a watch has received no event for {silent:.0f} s\n")
        return web.Response(text="ok\n")

    return live


def _ready(caches: Caches) -> Probe:
    async def ready(_: web.Request) -> web.Response:
        waiting = sorted({cache.kind.plural for cache in caches if not cache.answered.is_set()})
        if waiting:
            return web.Response(status=503, text=f"not yet listed: {', '.join(waiting)}\n")
        return web.Response(text="ok\n")

    return ready


def _metrics(caches: Caches, meter: Metrics) -> Probe:
    async def metrics(_: web.Request) -> web.Response:
        meter.silence.set(caches.silent_s())
        return web.Response(body=meter.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return metrics
