"""The leader's gRPC process: routers and supervisors talk to it, the core does the work.

One server carries Engine and Group; each call checks the role in the caller's certificate.
"""

import asyncio
import gc
import logging
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import uvloop

from octavo.proto.v1 import engine_pb2_grpc, group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.channel import OPTIONS
from octavo.worker.errors import ConfigError, Fault
from octavo.worker.ipc import process
from octavo.worker.ipc import shared_board as boards
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.ipc.shared_board import SERVE, Board, ProcessSlot
from octavo.worker.leader.engine_service import EngineServicer
from octavo.worker.leader.group_sleep import GroupSleep, Moved
from octavo.worker.leader.request_registry import RequestRegistry
from octavo.worker.leader.step_broadcast import StepBroadcast
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.membership.sleep import LeaderSleepServicer
from octavo.worker.models.folder.checkpoint import digest_of, inspect
from octavo.worker.tls import Roles, bind

_BEAT_S = 0.25
_CLOSE_S = 2.0

logger = logging.getLogger(__name__)


class Serve:
    """The leader's gRPC process in one incarnation."""

    def __init__(self, context: ProcessContext) -> None:
        config = context.config
        self._context = context
        self._board = Board(context.shared.board)
        checkpoint = inspect(Path(context.model_dir))
        layout = config.layout
        shape = (layout.tensor, layout.pipeline, layout.per_pod)
        identity = Identity(config.service_uid, config.revision, context.outline, shape)
        self._incarnation = Incarnation(context.incarnation, identity, layout.pods)
        self._roles = Roles(config)
        self._registry = RequestRegistry(config, context.shared, checkpoint.eos_ids)
        self._draining = asyncio.Event()
        self._broadcast = StepBroadcast(context.shared, self._board, layout, self._draining)
        self._group = GroupServicer(self._incarnation, self._roles, self._broadcast)
        self._sleep = GroupSleep(self._registry, lambda: self._group.show(self._phase()))
        self._ranks = [boards.RANK + rank for rank in range(layout.ranks)]

    async def run(self) -> None:
        """Until drained, or until the incarnation ends. Raises Fault when it ends by a failure."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._draining.set)
        server = self._server()
        await server.start()
        self._registry.start()
        self._broadcast.start(self._group)
        gc.freeze()  # what is there now stays: collections need not go through it with every few hundred messages
        tasks = [asyncio.create_task(one) for one in (self._beat(), self._group.watch(), self._drain())]
        failing: list[asyncio.Future[None]] = [*tasks, self._registry.broken]
        ending: asyncio.Future[Any] = asyncio.create_task(self._group.ended.wait())  # its result says nothing
        await asyncio.wait([*failing, ending], return_when=asyncio.FIRST_COMPLETED)
        await server.stop(1.0)
        for one in failing:
            if one.done():
                one.result()
        if (failure := self._group.failure) is not None:
            raise Fault(FailureReason.parse(failure.reason), failure.message)

    def _server(self) -> grpc.aio.Server:
        config, context = self._context.config, self._context
        server = grpc.aio.server(options=OPTIONS)
        model = (Path(context.model_dir), context.outline)
        servicer = EngineServicer(self._registry, config, self._roles, self._incarnation.id, model)
        engine_pb2_grpc.add_EngineServicer_to_server(servicer, server)
        group_pb2_grpc.add_GroupServicer_to_server(self._group, server)
        sleeping = LeaderSleepServicer(self._put_to_sleep, self._wake)
        group_pb2_grpc.add_GroupSleepServicer_to_server(sleeping, server)
        addresses = {config.serve: "--serve", config.group: "--group", context.local: "--group"}
        try:
            for address, flag in addresses.items():
                bind(server, flag, address, config)
        except ConfigError as error:
            raise Fault(FailureReason.ADDRESS_UNAVAILABLE, str(error)) from error
        return server

    async def _beat(self) -> None:
        while True:
            self._board.beat(SERVE)
            self._board.write(SERVE, ProcessSlot.LATE, self._incarnation.late)
            if self._registry.ready.is_set():
                self._show_digest()
                self._board.write(SERVE, ProcessSlot.PHASE, group_pb2.SERVING)
                self._registry.offer_credit_when_due()
            self._group.show(self._phase())
            await asyncio.sleep(_BEAT_S)

    def _show_digest(self) -> None:
        """For the supervisor, before it sees that this process serves."""
        if not self._board.read(SERVE, ProcessSlot.DIGEST):
            digest = digest_of(self._context.outline, self._registry.weights)
            logger.info("model %s", digest)
            self._board.write(SERVE, ProcessSlot.DIGEST_END, int(digest[16:], 16))
            self._board.write(SERVE, ProcessSlot.DIGEST, int(digest[:16], 16))

    def _phase(self) -> "group_pb2.Phase.ValueType":
        """Of the group, for its other pods."""
        if self._draining.is_set():
            return group_pb2.DRAINING
        if not self._incarnation.complete:
            return group_pb2.STARTING
        if self._registry.asleep:
            return group_pb2.ASLEEP
        loaded = all(self._board.read(slot, ProcessSlot.PHASE) == group_pb2.SERVING for slot in self._ranks)
        return group_pb2.SERVING if loaded and self._registry.ready.is_set() else group_pb2.WARMING

    async def _put_to_sleep(self, request: group_pb2.SleepRequest) -> group_pb2.SleepReply:
        return _reply(await self._sleep.sleep(request.keep_kv, request.now))

    async def _wake(self, request: group_pb2.WakeRequest) -> group_pb2.SleepReply:
        return _reply(await self._sleep.wake())

    async def _drain(self) -> None:
        """On SIGTERM: refuse new work, finish, end the incarnation."""
        await self._draining.wait()
        logger.info("draining")
        self._registry.drain()
        while self._registry.busy:
            await asyncio.sleep(0.02)
        await self._registry.close_streams(_CLOSE_S)
        self._group.end(None)


def _reply(moved: Moved) -> group_pb2.SleepReply:
    return group_pb2.SleepReply(
        changed=moved.changed, moved_bytes=moved.bytes, waited_ms=round(1000 * moved.waited_s),
        took_ms=round(1000 * moved.took_s),
    )  # fmt: skip


def main(context: ProcessContext) -> None:
    uvloop.run(_run(context))


async def _run(context: ProcessContext) -> None:
    await Serve(context).run()


if __name__ == "__main__":
    process.run("serve", main)
