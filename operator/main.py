"""`octavo operator`: its flags, and the construction of its parts.

kopf --name--> queue --> controller: observe -> plan -> apply        caches <--watch-- API server
                 ^-------- changes of children --------------------------'
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from octavo.operator import kopf_handlers as trigger
from octavo.operator.cluster.apply import Writer
from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.crd_check import OldCRD, wait_for_crd
from octavo.operator.cluster.events import Recorder, record_left_alone
from octavo.operator.cluster.informers import Caches, service_key
from octavo.operator.cluster.kube import Kube, KubeError, Object
from octavo.operator.cluster.lease import Lease
from octavo.operator.cluster.login import login
from octavo.operator.cluster.namespace_leases import NamespaceLeases
from octavo.operator.controller import Controller, Reconcile
from octavo.operator.groups.options import Options, add_allow_lists
from octavo.operator.health import Address, serving
from octavo.operator.metrics import Metrics
from octavo.operator.observing.drains import Drains
from octavo.operator.observing.observer import Observer
from octavo.operator.reconcile import Reconciler
from octavo.operator.workqueue import WorkQueue

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
STOP_TRIGGER_S = 3.0
log = logging.getLogger("octavo.operator")


@dataclass(frozen=True, slots=True)
class Config:
    """Settings from the flags."""

    namespaces: tuple[str, ...]  # empty: all
    options: Options
    metrics: Address
    health: Address
    lease_namespace: str
    identity: str


def main(argv: list[str]) -> int:
    config = parse_arguments(argv)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO, stream=sys.stderr)
    quiet_kopf()
    try:
        return asyncio.run(serve(config))
    except OldCRD as error:
        log.error("%s", error)
    except KubeError as error:
        log.error("cannot reach the Kubernetes API: %s", error)
    return 1


def quiet_kopf() -> None:
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """False for kopf's warning that it runs in a thread and leaves signals alone, as it must here."""
    return not record.getMessage().startswith("OS signals are ignored")


def parse_arguments(argv: list[str]) -> Config:
    defaults = Options()
    parser = argparse.ArgumentParser(prog="octavo operator", description="Reconcile InferenceServices.")
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="watch only this namespace (repeatable; default: all)")
    add("--worker-image", default=defaults.worker_image, help="image of new groups (default: %(default)s)")
    add("--router-image", default=defaults.router_image, help="image of the routers (default: %(default)s)")
    add("--image-pull-policy", default=defaults.image_pull_policy, choices=["Always", "IfNotPresent", "Never"])
    add_allow_lists(parser)
    add(
        "--api-server-port",
        action="append",
        type=int,
        help="port of the API server behind its Service, to which routers may connect (repeatable; default: 443, 6443)",
    )
    add("--metrics", type=_address, default=("0.0.0.0", 8080), help="HOST:PORT of /metrics")
    add("--health", type=_address, default=("0.0.0.0", 8081), help="HOST:PORT of /livez and /readyz")
    add("--lease-namespace", default=_own_namespace(), help="namespace of the Lease (default: %(default)s)")
    add("--identity", default=socket.gethostname(), help="this replica's name in the Lease (default: %(default)s)")
    flags = parser.parse_args(argv)
    options = Options(
        worker_image=flags.worker_image,
        router_image=flags.router_image,
        image_pull_policy=flags.image_pull_policy,
        host_path_allow=tuple(flags.allow_host_path),
        image_allow=tuple(flags.allow_image),
        api_server_ports=tuple(flags.api_server_port or defaults.api_server_ports),
        operator_namespace=flags.lease_namespace,
    )
    # A restarted process is another holder: writes of the earlier process may still be running.
    identity = f"{flags.identity}_{uuid.uuid4().hex[:8]}"
    return Config(tuple(flags.namespace), options, flags.metrics, flags.health, flags.lease_namespace, identity)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, found {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)


def _own_namespace() -> str:
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else os.environ.get("POD_NAMESPACE", "default")


async def serve(config: Config) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = Kube(partial(login, log))
    try:
        return await _operate(config, client, stop)
    finally:
        await client.close()


async def _operate(config: Config, client: Kube, stop: asyncio.Event) -> int:
    """Run all parts until a signal, or until one of them ends, which is an error. Returns the exit code."""
    queue, meter = WorkQueue(), Metrics()
    generations: dict[str, tuple[str, int]] = {}
    caches = Caches(
        client,
        config.namespaces,
        # Services of the first list are not urgent, so that a user's change meanwhile goes first.
        on_service=lambda item: queue.add(
            service_key(item), urgent=spec_changed(generations, item) and caches.listed()
        ),
        on_child=lambda item: queue.add(service_key(item)),
    )
    left_alone = partial(record_left_alone, client, config.identity)
    lease = Lease(client, config.lease_namespace, config.identity, left_alone)
    namespaces = NamespaceLeases(client, lease, meter, left_alone, lambda name: _add_all(caches, queue, name))
    drains = Drains(client, queue.add, lease.held)
    controller = Controller(queue, lease, caches, _reconciler(config, client, caches, namespaces, meter, drains), meter)
    async with serving(config.health, config.metrics, caches, meter):
        known = asyncio.create_task(wait_for_crd(client))
        await _first(known, asyncio.create_task(stop.wait()))
        if stop.is_set():
            known.cancel()
            return 0
        await known  # raises OldCRD
        triggers = (drains.run(), _watch_services(config.namespaces, queue.add))
        parts = [caches.run(), lease.run(), namespaces.run(lambda: _in_use(caches)), controller.run(), *triggers]
        tasks = [asyncio.create_task(part) for part in parts]
        await _first(asyncio.create_task(stop.wait()), *tasks)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.error("a part of the operator failed", exc_info=task.exception())
        is_done = await controller.drain()
        failed = any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if is_done:  # else the Lease expires: no other replica may write while a write is running
            await lease.release()
    log.info("stopped")
    return 1 if failed else 0


def _in_use(caches: Caches) -> set[str]:
    """The namespaces that have services."""
    return {resource["metadata"]["namespace"] for resource in caches.services()}


def _add_all(caches: Caches, queue: WorkQueue, namespace: str) -> None:
    for resource in caches.services():
        if resource["metadata"]["namespace"] == namespace:
            queue.add(service_key(resource))


def _reconciler(
    config: Config, client: Kube, caches: Caches, namespaces: NamespaceLeases, meter: Metrics, drains: Drains
) -> Reconcile:
    writer = Writer(client, caches, namespaces.held, meter)
    certificates = CertificateKeeper(client, writer.apply, writer.holds)
    observer = Observer(client, caches, certificates, drains)
    recorder = Recorder(writer, config.identity)
    reconciler = Reconciler(caches, observer, writer, certificates, recorder, namespaces.take)
    return partial(reconciler.reconcile, options=config.options)


def spec_changed(seen: dict[str, tuple[str, int]], item: Object) -> bool:
    """True if the service is new or its spec changed, False if only its status did. Updates `seen`."""
    key, meta = service_key(item), item["metadata"]
    version = (str(meta.get("uid")), int(meta.get("generation", 0)))
    spec_changed = seen.get(key) != version
    seen[key] = version
    return spec_changed


async def _watch_services(namespaces: tuple[str, ...], enqueue: Callable[[str], None]) -> None:
    """kopf in its own thread; cancelling stops it."""
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def enqueue_from_thread(key: str) -> None:
        loop.call_soon_threadsafe(enqueue, key)

    thread = asyncio.create_task(asyncio.to_thread(trigger.run, namespaces, enqueue_from_thread, stop))
    try:
        await asyncio.shield(thread)
    finally:
        stop.set()
        await asyncio.wait([thread], timeout=STOP_TRIGGER_S)


async def _first(*tasks: asyncio.Task[Any]) -> None:  # Any: results are not used
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
