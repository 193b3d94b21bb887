"""A reverse proxy in front of the API server, plain HTTP on the loopback: it counts writes and can be cut."""

import asyncio
import base64
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

READS = ("GET", "HEAD", "OPTIONS")


class ApiProxy:
    """Start it with `with`. `after_write(n)` runs in the proxy's thread before the n-th write is answered."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._server = config["clusters"][0]["cluster"]["server"]
        self._tls = _client_context(config)
        self.kubeconfig = folder / "proxy.conf"
        self.writes: list[str] = []
        self.after_write: Callable[[int], None] = lambda number: None
        self._open: list[web.Request] = []
        self._down = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "ApiProxy":
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{port}")))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def heal(self) -> None:
        self._down = False

    def _cut(self) -> None:
        self._down = True
        for request in list(self._open):
            _abort(request)

    async def _start(self) -> int:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        self._cut()
        await self._runner.cleanup()
        await self._session.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._down:
            _abort(request)
            raise ConnectionResetError
        self._open.append(request)
        try:
            return await self._forward(request)
        finally:
            self._open.remove(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k in ("Content-Type", "Accept", "User-Agent")}
        url, body = self._server + request.path_qs, await request.read()
        async with self._session.request(request.method, url, data=body or None, headers=headers) as upstream:
            if request.method not in READS and "/leases" not in request.path and upstream.status < 300:
                self.writes.append(f"{request.method} {request.path}")
                self.after_write(len(self.writes))
            answer = web.StreamResponse(
                status=upstream.status, headers={"Content-Type": upstream.headers.get("Content-Type", "")}
            )
            await answer.prepare(request)
            async for chunk in upstream.content.iter_any():
                await answer.write(chunk)
            await answer.write_eof()
            return answer


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _client_context(config: Any) -> ssl.SSLContext:
    user = config["users"][0]["user"]
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as pair:
        for part in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[part]) + b"\n")
        pair.flush()
        context.load_cert_chain(pair.name)
    return context


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
