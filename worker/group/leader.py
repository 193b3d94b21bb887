"""The leader's side of Join: supervisors come in, heartbeat, and are told when the life ends."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.channel import first
from octavo.worker.group.incarnation import Identity, Incarnation, Member
from octavo.worker.tls import Roles

_LOOK_S = 0.5
_JoinContext: TypeAlias = "grpc.aio.ServicerContext[group_pb2.FromPod, group_pb2.FromLeader]"

logger = logging.getLogger(__name__)


class GroupServicer(group_pb2_grpc.GroupServicer):
    """One life: `ended` is set with a failure, or without one when the group has drained."""

    def __init__(self, incarnation: Incarnation, roles: Roles) -> None:
        self.incarnation = incarnation
        self.failure: group_pb2.Failure | None = None
        self.ended = asyncio.Event()
        self._roles = roles

    def end(self, failure: group_pb2.Failure | None = None) -> None:
        """End the life; the first cause counts."""
        if not self.ended.is_set():
            self.failure = failure
            self.ended.set()

    async def watch(self) -> None:
        """End the life when a stage has been silent for too long."""
        while not self.ended.is_set():
            if silent := self.incarnation.silent(time.monotonic()):
                stages = ", ".join(map(str, silent))
                logger.error("incarnation %s ends: stage %s was silent", self.incarnation.id, stages)
                self.end(group_pb2.Failure(rank=-1, reason="SupervisorSilent", message=f"stage {stages} was silent"))
            await asyncio.sleep(_LOOK_S)

    async def Join(
        self, request_iterator: AsyncIterator[group_pb2.FromPod], context: _JoinContext
    ) -> AsyncIterator[group_pb2.FromLeader]:
        await self._roles.require("worker", context)
        stage = await self._admit(await first(request_iterator), context)
        mine = self.incarnation
        reading = asyncio.create_task(self._listen(stage, request_iterator))
        ending = asyncio.create_task(self.ended.wait())
        try:
            yield group_pb2.FromLeader(incarnation=mine.id, joined=group_pb2.Joined())
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            self._lost(stage)
            yield group_pb2.FromLeader(incarnation=mine.id, end=group_pb2.EndIncarnation(failure=self.failure))
        finally:  # a pod that is gone at once cancels this call
            self._lost(stage)
            mine.leave(stage)
            for task in (reading, ending):
                task.cancel()

    def _lost(self, stage: int) -> None:
        self.end(group_pb2.Failure(rank=-1, reason="SupervisorLost", message=f"stage {stage} left the group"))

    async def _admit(self, said: group_pb2.FromPod | None, context: _JoinContext) -> int:
        if said is None or said.WhichOneof("kind") != "handshake":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of Join is its handshake")
        assert said is not None  # abort does not return
        shake = said.handshake
        identity = Identity(shake.service_uid, shake.revision, shake.fingerprint)
        refusal = self.incarnation.join(shake.stage, identity, time.monotonic())
        if refusal is not None:
            logger.warning("a Join was refused: %s", refusal)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        return shake.stage

    async def _listen(self, stage: int, messages: AsyncIterator[group_pb2.FromPod]) -> None:
        """Returns when the stage is gone."""
        async for message in messages:
            if message.WhichOneof("kind") == "heartbeat":
                beat = message.heartbeat
                member = Member(time.monotonic(), beat.phase, beat.progress_percent, beat.finished_step)
                self.incarnation.hear(stage, message.incarnation, member)
