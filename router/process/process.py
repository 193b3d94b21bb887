"""One process of a router: `python -m octavo.router.process.process CONTROL_FD INDEX FLAGS...`, started by `octavo
router`.

    serving --SIGTERM--> draining (503 on /routerz, serves on) --drain delay--> listeners closed --last answer--> exit 0

The control socket asks for metrics; its end means that the parent is gone, and ends the process. On Linux the kernel
does so, also when the process is stopped: it must not keep its port.
"""

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict

import uvloop
from aiohttp import web

from octavo.router.background import background
from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.dispatch.dispatch import FleetDispatcher
from octavo.router.dispatch.rules.admission import QueueLimits
from octavo.router.frontend.grpc.grpc_server import GrpcServer
from octavo.router.frontend.http.server import HttpServer
from octavo.router.frontend.key_file import KeyFile
from octavo.router.frontend.request_pipeline import ServerState, Services
from octavo.router.metrics import MetricReading, RouterMetrics
from octavo.router.openai_api.cors import Cors
from octavo.router.process.config import Config, parse_arguments
from octavo.router.process.rules.metrics_merge import snapshot
from octavo.router.tokenizer_pool.model_loader import ModelLoader
from octavo.shared.parent import end_with_parent

log = logging.getLogger("octavo.router")

BACKLOG = 1024
UNREAD_MS = 120_000  # in which a client takes nothing of what it is sent: then the kernel ends the connection
POLL_S = 0.05
OTHER_FILES = 512  # for groups, helpers, and clients that are being turned away
RESERVE_S = 2.0  # of the grace period, to close in order
YOUNG_OBJECTS = (
    10_000  # between collections of cycles; requests make few cycles, and many objects that end by themselves
)


def main(argv: list[str]) -> int:
    end_with_parent()
    config = parse_arguments(argv[2:])
    logging.basicConfig(
        format=f"%(asctime)s %(levelname)s router[{argv[1]}] %(message)s", level=config.log_level, stream=sys.stderr
    )
    control = socket.socket(fileno=int(argv[0]))
    gc.freeze()  # what is imported stays
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    try:
        uvloop.run(_run(config, control, int(argv[1])))
    except (ValueError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


async def _run(config: Config, control: socket.socket, index: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = RouterMetrics()
    async with running(_settings(config, index)) as dispatcher:
        metrics.read_from(lambda: _fleet_readings(dispatcher))
        talk = asyncio.create_task(_answer_queries(control, metrics))
        serve = asyncio.create_task(_serve(config, dispatcher, metrics, stop))
        done, _ = await asyncio.wait((talk, serve), return_when=asyncio.FIRST_COMPLETED)
        if serve not in done:
            log.error("the parent process is gone: ending")
            serve.cancel()
        with suppress(asyncio.CancelledError):
            await serve
        _send_last_metrics(control, metrics)
        talk.cancel()


async def _serve(config: Config, dispatcher: FleetDispatcher, metrics: RouterMetrics, stop: asyncio.Event) -> None:
    model_loader = ModelLoader(dispatcher, config.parsers)
    metrics.read_from(model_loader.readings)
    state = ServerState()
    metrics.open.set_function(lambda: state.open)
    key_file = None if config.api_keys_file is None else KeyFile(config.api_keys_file)
    services = Services(
        dispatcher,
        model_loader,
        metrics,
        state,
        config.served_name,
        config.settings.queue_max_wait_s,
        key_file=key_file,
        cors=Cors(frozenset(config.settings.cors_origins)),
        strict=config.settings.strict,
        client_priority=config.settings.client_priority,
    )
    most = _most_connections(config)
    grpc_server = GrpcServer(services, config.grpc, most) if config.grpc is not None else None
    connections = HttpServer(services).build(most_connections=most)
    metrics.connections.set_function(lambda: connections.count)
    runner = web.ServerRunner(connections, shutdown_timeout=0.1)
    await runner.setup()
    follow = [background(model_loader.follow(), "model follower")]
    if key_file is not None:
        metrics.read_from(key_file.readings)
        follow.append(background(key_file.follow(), "API keys"))
    try:
        if grpc_server is not None:
            await grpc_server.start()
        site = web.SockSite(runner, _listener(config), backlog=BACKLOG)
        await site.start()
        await stop.wait()
        await _drain(config, state, site, grpc_server)
    finally:
        for task in follow:
            task.cancel()
        await runner.cleanup()
        if grpc_server is not None:
            await grpc_server.stop()
        await model_loader.close()


async def _drain(config: Config, state: ServerState, site: web.SockSite, grpc_server: GrpcServer | None) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(config.grace_period_s - RESERVE_S, 0.0)
    state.draining = True
    log.info("draining: %d requests open", state.open)
    await asyncio.sleep(min(config.drain_delay_s, max(deadline - loop.time(), 0.0)))
    await site.stop()
    if grpc_server is not None:
        background(grpc_server.refuse(max(deadline - loop.time(), 0.0)), "end of gRPC")
    while state.open and loop.time() < deadline:
        await asyncio.sleep(POLL_S)
    if state.open:
        log.warning("the grace period is over: %d requests are cut", state.open)


def _listener(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.http.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)  # its connections have it from it
    listener.bind((config.http.host, config.http.port))
    return listener


def _most_connections(config: Config) -> int:
    """Of either API: this process's share of the router's bound, and fewer where the system gives fewer files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    apis = 1 if config.grpc is None else 2
    desired = apis * -(-config.settings.max_connections // config.settings.processes) + OTHER_FILES
    allowed = desired if hard == resource.RLIM_INFINITY else min(desired, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < desired:
        log.warning("the limit of %d open files leaves room for %d connections", hard, allowed - OTHER_FILES)
    return max(1, (allowed - OTHER_FILES) // apis)


def _settings(config: Config, index: int) -> FleetSettings:
    """The queue's bound is the router's: each process holds its share."""
    share = -(-config.settings.queue_max_requests // config.settings.processes)
    return FleetSettings(
        groups=config.groups,
        endpoints=config.endpoints,
        tls_dir=config.tls_dir,
        service_uid=config.service_uid,
        router=f"{socket.gethostname()}/{index}",
        bounds=QueueLimits(share, config.settings.queue_max_wait_s),
        policy=config.settings.policy,
    )


async def _answer_queries(control: socket.socket, metrics: RouterMetrics) -> None:
    """Answer each byte with a line of metrics, until the parent is gone."""
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(control, 1):
        await loop.sock_sendall(control, snapshot(metrics.registry) + b"\n")


def _send_last_metrics(control: socket.socket, metrics: RouterMetrics) -> None:
    """Send the last metrics, so that the parent's sums are complete."""
    control.setblocking(True)
    control.settimeout(1.0)
    with suppress(OSError):
        control.sendall(snapshot(metrics.registry) + b"\n")


def _fleet_readings(dispatcher: FleetDispatcher) -> Iterator[MetricReading]:
    for name, value in asdict(dispatcher.counts).items():
        yield f"octavo_router_jobs_{name}", f"Engine requests: {name.replace('_', ' ')}", True, value
    yield "octavo_router_queue_requests", "Engine requests that wait for a group", False, dispatcher.waiting
    yield "octavo_router_running_requests", "Engine requests at a group", False, dispatcher.under_way
    yield (
        "octavo_router_listed_groups",
        "Groups in the list, in sum over processes",
        False,
        dispatcher.reachability.listed,
    )
    missing = len(dispatcher.reachability.missing)
    yield "octavo_router_missing_groups", "Listed groups to which a process has no stream, in sum", False, missing
    mismatched = len(dispatcher.fleet.mismatched)
    text = "Groups without requests, as their model is not that of their revision, in sum"
    yield "octavo_router_mismatched_groups", text, False, mismatched
    yield "octavo_router_asleep_groups", "Groups that sleep, in sum over processes", False, dispatcher.fleet.asleep
    skewed = len(dispatcher.fleet.skews)
    yield "octavo_router_skewed_groups", "Groups of a release too far from the router's, in sum", False, skewed
    yield "octavo_router_internal_errors", "Errors of the router that were contained", True, dispatcher.errors.count
    yield "octavo_router_ready_processes", "Processes of this router that have a group", False, float(dispatcher.ready)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
