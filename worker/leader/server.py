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
from octavo.worker.ipc.process_context import Wiring
from octavo.worker.ipc.shared_board import SERVE, Board, ProcessSlot
from octavo.worker.leader.engine_service import EngineServicer
from octavo.worker.leader.request_registry import Engine
from octavo.worker.leader.step_broadcast import Relay
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.tls import Roles, bind

_BEAT_S = 0.25
_CLOSE_S = 2.0

logger = logging.getLogger(__name__)


class Serve:
    """One life of the leader."""

    def __init__(self, wiring: Wiring) -> None:
        config = wiring.config
        self._wiring = wiring
        self._board = Board(wiring.shared.board)
        checkpoint = inspect(Path(wiring.model_dir))
        layout = config.layout
        shape = (layout.tensor, layout.pipeline, layout.per_pod)
        identity = Identity(config.service_uid, config.revision, wiring.fingerprint, shape)
        self._incarnation = Incarnation(wiring.incarnation, identity, layout.pods)
        self._roles = Roles(config)
        self._engine = Engine(config, wiring.shared, checkpoint.eos_ids)
        self._draining = asyncio.Event()
        self._relay = Relay(wiring.shared, self._board, layout, self._draining)
        self._group = GroupServicer(self._incarnation, self._roles, self._relay)
        self._ranks = [boards.RANK + rank for rank in range(layout.ranks)]

    async def run(self) -> None:
        """Until drained, or until the life ends. Raises Fault when it ends by a failure."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._draining.set)
        server = self._server()
        await server.start()
        self._engine.start()
        self._relay.start(self._group)
        gc.freeze()  # what is there now stays: collections need not go through it with every few hundred messages
        tasks = [asyncio.create_task(one) for one in (self._beat(), self._group.watch(), self._drain())]
        failing: list[asyncio.Future[None]] = [*tasks, self._engine.broken]
        ending: asyncio.Future[Any] = asyncio.create_task(self._group.ended.wait())  # its result says nothing
        await asyncio.wait([*failing, ending], return_when=asyncio.FIRST_COMPLETED)
        await server.stop(1.0)
        for one in failing:
            if one.done():
                one.result()
        if (failure := self._group.failure) is not None:
            raise Fault(FailureReason.parse(failure.reason), failure.message)

    def _server(self) -> grpc.aio.Server:
        config, wiring = self._wiring.config, self._wiring
        server = grpc.aio.server(options=OPTIONS)
        model = (Path(wiring.model_dir), wiring.fingerprint)
        servicer = EngineServicer(self._engine, config, self._roles, self._incarnation.id, model)
        engine_pb2_grpc.add_EngineServicer_to_server(servicer, server)
        group_pb2_grpc.add_GroupServicer_to_server(self._group, server)
        addresses = {config.serve: "--serve", config.group: "--group", wiring.local: "--group"}
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
            if self._engine.ready.is_set():
                self._board.write(SERVE, ProcessSlot.PHASE, group_pb2.SERVING)
                self._engine.tell_credit_when_due()
            self._group.show(self._phase())
            await asyncio.sleep(_BEAT_S)

    def _phase(self) -> "group_pb2.Phase.ValueType":
        """Of the group, for its other pods."""
        if self._draining.is_set():
            return group_pb2.DRAINING
        if not self._incarnation.complete:
            return group_pb2.STARTING
        loaded = all(self._board.read(slot, ProcessSlot.PHASE) == group_pb2.SERVING for slot in self._ranks)
        return group_pb2.SERVING if loaded and self._engine.ready.is_set() else group_pb2.WARMING

    async def _drain(self) -> None:
        """On SIGTERM: refuse new work, finish, end the life."""
        await self._draining.wait()
        logger.info("draining")
        self._engine.drain()
        while self._engine.busy:
            await asyncio.sleep(0.02)
        await self._engine.close_streams(_CLOSE_S)
        self._group.end(None)


def main(wiring: Wiring) -> None:
    uvloop.run(_run(wiring))


async def _run(wiring: Wiring) -> None:
    await Serve(wiring).run()


if __name__ == "__main__":
    process.run("serve", main)
