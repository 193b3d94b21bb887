"""/metrics of a whole router, on a port of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from octavo.router.frontend.address import Address
from octavo.router.process.ports import CannotListen
from octavo.router.process.process_manager import ProcessManager

IDLE_S = 300.0  # between two scrapes


@asynccontextmanager
async def serving_metrics(address: Address | None, manager: ProcessManager) -> AsyncIterator[None]:
    """Serves while the block runs; nothing without an address. Raises CannotListen."""
    if address is None:
        yield
        return

    runner = web.ServerRunner(metrics_server(manager.metrics))
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address.host, address.port, reuse_address=True).start()
        except OSError as error:
            raise CannotListen("--metrics", address, error) from error
        yield
    finally:
        await runner.cleanup()


def metrics_server(page: Callable[[], Awaitable[bytes]], idle_s: float = IDLE_S) -> web.Server:
    async def handle(request: web.BaseRequest) -> web.Response:
        if request.path != "/metrics" or request.method not in ("GET", "HEAD"):
            return web.Response(status=404, text="only /metrics is here\n")
        return web.Response(body=await page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return web.Server(handle, access_log=None, keepalive_timeout=idle_s)
