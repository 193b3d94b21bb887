"""One service on one machine: routers and groups as processes, joined by Unix sockets.

start groups -> start routers -> wait until /readyz -> serve -> on Ctrl-C or SIGTERM: drain routers, then groups
"""

import asyncio
import http.client
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

from octavo.local import ask, gpus
from octavo.local.children import Child
from octavo.local.commands import Sockets, pod_name, router_argv, worker_argv
from octavo.local.flags import Settings
from octavo.local.start_failed import StartFailed
from octavo.router.frontend.address import Address
from octavo.router.process.ports import EXIT_CODE, CannotListen, reserved
from octavo.shared.scratch import scratch
from octavo.worker.devices import gpu

READY_POLL_S = 0.1


class Service:
    """A local service; `run` serves until SIGINT or SIGTERM and returns the exit code."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = _with_key_file(settings, folder)
        self._leaders = [Sockets(folder, group) for group in range(settings.service.spec.replicas)]
        self._port = settings.port or _free_port(settings.host)
        self._grpc_port = _free_port(settings.host) if settings.grpc_port == 0 else settings.grpc_port
        self._workers: list[Child] = []
        self._router: Child | None = None

    async def run(self) -> int:
        """Returns 0 after a drain, 1 if the service could not start, 2 if its configuration is invalid."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        serving = asyncio.create_task(self._start())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if serving.done():
                serving.result()
                await stopped
        except StartFailed as error:
            print(f"octavo run: {error}", file=sys.stderr)
            return error.code
        finally:
            serving.cancel()
            stopped.cancel()
            await self._stop()
        return 0

    async def _start(self) -> None:
        spec = self._settings.service.spec
        count = 0 if self._settings.device == "cpu" else gpu.count()
        for sockets in (replace(leader, pod=pod) for leader in self._leaders for pod in range(spec.pods)):
            shown = gpus.shown(spec, sockets, count, os.environ)
            child = Child(pod_name(self._settings, sockets), worker_argv(self._settings, sockets), _report, shown)
            self._workers.append(child)
            await child.start()
        argv = router_argv(self._settings, self._port, self._grpc_port, self._leaders)
        self._router = Child("router", argv, _report)
        await self._router.start()
        from octavo.local.progress import Progress  # gRPC takes a while to import: the processes are on their way

        progress = Progress()
        for index, leader in enumerate(self._leaders):
            await progress.until_serving(leader.status, f"group {index}")
        await self._until_ready()
        self._greet(spec.model.served_name)
        if self._settings.prompt is not None:
            server = ask.Server(self._host, self._port, spec.model.served_name, self._settings.api_key)
            await asyncio.to_thread(ask.show, server, self._settings.prompt)

    async def _until_ready(self) -> None:
        while not await asyncio.to_thread(self._ready):
            await asyncio.sleep(READY_POLL_S)
        assert self._router is not None
        if self._router.last_code == EXIT_CODE:  # taken since it was looked at: another's router has answered
            raise StartFailed("PortTaken", f"--port {self._port}: another process listens there; choose another port")

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=2.0)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False  # not listening yet
        finally:
            connection.close()

    @property
    def _host(self) -> str:
        return "127.0.0.1" if self._settings.host in ("0.0.0.0", "") else self._settings.host

    def _greet(self, model: str) -> None:
        url = f"http://{self._host}:{self._port}/v1"
        print(f"\nServing {model} at {url}   (Ctrl-C to stop)")
        if self._grpc_port is not None:
            print(f"gRPC (octavo.v1.Inference) at {self._host}:{self._grpc_port}")
        print()
        key = "" if self._settings.api_key is None else " -H 'Authorization: Bearer KEY'"
        print(f"curl {url}/chat/completions{key} -H 'Content-Type: application/json' -d '{{")
        print(f'  "model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}\'', flush=True)

    async def _stop(self) -> None:
        timeout = self._settings.drain_timeout_s
        print("octavo run: draining", file=sys.stderr, flush=True)
        if self._router is not None:
            await self._router.stop(timeout)
        await asyncio.gather(*(worker.stop(timeout) for worker in self._workers))


def run(settings: Settings) -> int:
    """Serve until interrupted."""
    try:
        _check_free(settings)
    except CannotListen as error:
        print(f"octavo run: {error}", file=sys.stderr)
        return 2
    with scratch("octavo-run-") as folder:
        return asyncio.run(Service(settings, folder).run())


def _with_key_file(settings: Settings, folder: Path) -> Settings:
    """Pass the key of a flag on in a file with mode 0600: other users can see a process's flags."""
    if settings.api_key is None or settings.keys_file is not None:
        return settings
    path = folder / "api-keys"
    path.touch(0o600)
    path.write_text(settings.api_key + "\n")
    return replace(settings, keys_file=path)


def _report(text: str) -> None:
    print(f"octavo run: {text}", file=sys.stderr, flush=True)


def _check_free(settings: Settings) -> None:
    """Before anything is started; later the router holds the ports. Raises CannotListen."""
    for flag, port in (("--port", settings.port), ("--grpc-port", settings.grpc_port)):
        if port:
            with reserved(flag, Address(settings.host, port)):
                pass


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
