"""Pid 1 of a worker pod: it outlives the processes that do the work and restarts them when they fail.

check the model --> an incarnation --> failed: kill all, record, back off --> check the model ...
                        '----> drained: asked to stop, exit 0; another pod of the group was: the next one
                        '----> failed before it had drained: exit 1
"""

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason
from octavo.shared.scratch import scratch
from octavo.worker.channel import OPTIONS
from octavo.worker.config import Config, is_unix
from octavo.worker.errors import ConfigError
from octavo.worker.ipc.process import adopt_orphans
from octavo.worker.lifecycle.backoff import FIRST_S, Backoff
from octavo.worker.membership.sleep import SupervisorSleepServicer
from octavo.worker.membership.status import GroupState, StatusServicer, failure
from octavo.worker.models.folder.checkpoint import Checkpoint, ModelError, servable
from octavo.worker.models.sources.resolve import resolve
from octavo.worker.supervisor.check_config import check_fit
from octavo.worker.supervisor.child_processes import Children
from octavo.worker.supervisor.fork_server_client import ForkServer, ForkServerClient
from octavo.worker.supervisor.health import health_pages
from octavo.worker.supervisor.incarnation_run import IncarnationRun, RunSpec
from octavo.worker.supervisor.metrics import Totals, metrics_page
from octavo.worker.supervisor.pages import serve_pages
from octavo.worker.tls import Roles, bind

ADMIN_FOLDER, ADMIN_SOCKET = "octavo-worker-", "0-0-status.sock"  # as `octavo run` names them
_REFUSED_S = 2.0  # between two attempts to join that a leader refuses, at most: each checks the model
_DRAIN_MARGIN_S = 5.0  # a drain ends so long before the kubelet's SIGKILL

logger = logging.getLogger(__name__)


class Supervisor:
    """One pod. fork_server: one that has been started for it already."""

    def __init__(self, config: Config, fork_server: ForkServer | None = None) -> None:
        self._config = config
        self._state = GroupState()
        self._totals = Totals()
        self._fork_server = ForkServerClient(fork_server)
        self._children = Children(self._fork_server)
        self._stopping = asyncio.Event()
        self._started_at_ms = time.time_ns() // 1_000_000

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code."""
        adopt_orphans()  # ranks are grandchildren whose parent ends
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGCHLD, lambda: self._children.reap())
        server = grpc.aio.server(options=OPTIONS)
        try:
            with _local_addresses(self._config) as (local, admin):
                await self._listen(server, local, admin)
                return await self._run_incarnations(local)
        except ConfigError as error:
            print(f"octavo worker: {error}", file=sys.stderr)
            return 2
        finally:
            await server.stop(0)

    async def _listen(self, server: grpc.aio.Server, local: str, admin: str | None) -> None:
        """local: the leader's socket inside the pod; admin: another place for what the status port serves, for users in
        the pod."""
        config, roles = self._config, Roles(self._config)
        health = health_pages(self._state, lambda: self._children.unkillable_s)
        await serve_pages("--health", config.health, health)
        await serve_pages("--metrics", config.metrics, {"/metrics": metrics_page(self._totals, self._state)})
        group_pb2_grpc.add_StatusServicer_to_server(StatusServicer(config, self._state, roles), server)
        sleeping = SupervisorSleepServicer(config, self._state, roles, local)
        group_pb2_grpc.add_GroupSleepServicer_to_server(sleeping, server)
        for address in (config.status, admin):
            if address is not None:
                bind(server, "--status", address, config)
        await server.start()

    async def _run_incarnations(self, local: str) -> int:
        """Incarnations, one after the other, until this pod is asked to stop; the exit code."""
        backoff = Backoff()
        while not self._stopping.is_set():
            served_s, failed = await self._one_incarnation(local)
            if failed is None:  # drained, on this pod's request or on another's; then the group starts again
                continue
            self._state.failed(failed)
            wait_s, backoff = backoff.after(served_s)
            if not self._config.leads:  # the leader waits; the others are there when it begins
                wait_s = min(wait_s, _REFUSED_S) if failed.reason == FailureReason.JOIN_REFUSED else FIRST_S
            draining = self._stopping.is_set()
            then = "it had not drained, requests are lost" if draining else f"the next begins in {wait_s:.1f} s"
            logger.error(
                "incarnation %d failed: %s (pod %s, rank %d, exit code %d): %s; %s",
                self._state.restarts, failed.reason, failed.pod, failed.rank, failed.exit_code, failed.message, then,
            )  # fmt: skip
            if draining:
                return 1
            if failed.reason == FailureReason.POD_REPLACED and failed.pod == self._config.pod_name:
                # It must not come between the leader and its other pods.
                logger.error("another pod has this one's name and place: it waits for its end")
                await self._stopping.wait()
            await self._wait(asyncio.sleep(wait_s), None)
        logger.info("drained")
        return 0

    async def _one_incarnation(self, local: str) -> tuple[float, group_pb2.Failure | None]:
        """(seconds served, failure); no failure when it drained."""
        try:
            checkpoint = await self._check_model()
        except (ModelError, ConfigError) as error:
            return 0.0, failure(self._config.pod_name, -1, error.reason, 0, str(error))
        if checkpoint is None:
            return 0.0, None
        self._children = Children(self._fork_server)
        spec = RunSpec(
            self._config, str(checkpoint.folder), checkpoint.outline, local, os.getpid(), self._started_at_ms
        )
        incarnation = IncarnationRun(spec, self._state, self._children)
        self._totals.current = incarnation.gauges
        try:
            failed = await self._run(incarnation)
        finally:
            self._totals.end_incarnation()
            incarnation.close()
        return incarnation.served_s, failed

    async def _run(self, incarnation: IncarnationRun) -> group_pb2.Failure | None:
        """Run the incarnation; on a stop drain it, for as long as the grace period allows."""
        running = asyncio.create_task(incarnation.run())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            if incarnation.serving:
                incarnation.drain()
                logger.info("draining")
                await asyncio.wait({running}, timeout=max(1.0, self._config.grace_s - _DRAIN_MARGIN_S))
            running.cancel()
            await asyncio.wait({running})
        return None if running.cancelled() else running.result()

    async def _check_model(self) -> Checkpoint | None:
        """Find and check the model in a thread, because it may take long; None when the pod is stopped meanwhile.

        Raises ModelError, or ConfigError for what this model cannot do.
        """
        config, state = self._config, self._state
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Checkpoint | ModelError | ConfigError] = loop.create_future()

        def fetching(percent: int) -> None:
            state.phase, state.progress_percent = group_pb2.FETCHING, percent

        def settle(result: Checkpoint | ModelError | ConfigError) -> None:
            if not answer.done():
                answer.set_result(result)

        def check() -> None:
            result: Checkpoint | ModelError | ConfigError
            try:
                result = servable(resolve(config.model, fetching))
                check_fit(config, result)
            except (ModelError, ConfigError) as error:
                result = error
            except Exception as error:  # whatever a file can do to a parser is the model's fault, with its text
                logger.exception("checking the model failed")
                result = ModelError(FailureReason.MODEL_INVALID, config.model, f"{type(error).__name__}: {error}")
            loop.call_soon_threadsafe(settle, result)

        threading.Thread(target=check, name="check-model", daemon=True).start()
        if not await self._wait(asyncio.shield(answer), None):
            return None
        result = answer.result()
        if not isinstance(result, Checkpoint):
            raise result
        state.model = group_pb2.ModelInfo(
            outline=result.outline, architecture=result.config.architecture, size_bytes=result.size_bytes,
            context_length=config.context_length or result.context_length, note="; ".join(result.notes),
        )  # fmt: skip
        return result

    async def _wait(self, what: Awaitable[object], limit_s: float | None) -> bool:
        """Wait for it, for the limit or for the stop, whichever is first; whether it came."""
        waiting = asyncio.ensure_future(what)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({waiting, stopping}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()
            stopping.cancel()


@contextmanager
def _local_addresses(config: Config) -> Iterator[tuple[str, str | None]]:
    """Where the leader listens for its own pod, a Unix socket in a folder of its own unless `group` is one; and the
    supervisor for users in the pod, unless `status` is one."""
    if is_unix(config.group) and is_unix(config.status):
        yield config.group, None
        return
    with scratch(ADMIN_FOLDER, _memory_disk()) as folder:
        local = config.group if is_unix(config.group) else f"unix:{folder}/leader.sock"
        yield local, None if is_unix(config.status) else f"unix:{folder}/{ADMIN_SOCKET}"


def _memory_disk() -> str | None:
    """Where a private socket can be made in a pod whose root is read-only; None elsewhere: the usual place."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return "/dev/shm"
    return None
