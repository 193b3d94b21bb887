"""The leader's side of Join: pods join, receive steps, send results, and learn when the incarnation ends."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias

import grpc
import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.channel import first
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership.status import failure
from octavo.worker.tls import Roles

_CHECK_S = 0.5
_BETTER_CAUSE_S = 1.0  # how long the pod of the rank that went first may take to say so
_JoinContext: TypeAlias = "grpc.aio.ServicerContext[group_pb2.FromPod, group_pb2.FromLeader]"

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Receives the messages of pods; every call is synchronous."""

    def heartbeat(self, pod: int, beat: group_pb2.Heartbeat) -> None:
        """Raises ValueError when it is none of this pod."""

    def record(self, record: bytes) -> None:
        """Of a rank: its hello, or a result."""

    def drain(self) -> None:
        """A pod was asked to stop."""


class GroupServicer(group_pb2_grpc.GroupServicer):
    """One incarnation: `ended` is set with a failure, or without one when the group has drained."""

    def __init__(self, incarnation: Incarnation, roles: Roles, listener: Listener) -> None:
        self.incarnation = incarnation
        self.failure: group_pb2.Failure | None = None
        self.ended = asyncio.Event()
        self._roles = roles
        self._listener = listener
        self._outgoing: dict[int, asyncio.Queue[group_pb2.FromLeader | None]] = {}  # by pod; None: the end
        self._phase = group_pb2.STARTING
        self._suspected: asyncio.Task[None] | None = None

    def end(self, failure: group_pb2.Failure | None = None) -> None:
        """End the incarnation; the first cause counts."""
        if not self.ended.is_set():
            self.failure = failure
            self.ended.set()
            for outgoing in self._outgoing.values():
                outgoing.put_nowait(None)

    def step(self, record: bytes) -> None:
        """To the ranks of every other pod; the core sends it to this pod's."""
        message = group_pb2.FromLeader(incarnation=self.incarnation.id, step=record)
        for pod, outgoing in self._outgoing.items():
            if pod:
                outgoing.put_nowait(message)

    def show(self, phase: "group_pb2.Phase.ValueType") -> None:
        """Send the group's phase to the pods, if it is new."""
        if phase != self._phase:
            self._phase = phase
            for outgoing in self._outgoing.values():
                outgoing.put_nowait(self._shown())

    def _shown(self) -> group_pb2.FromLeader:
        return group_pb2.FromLeader(incarnation=self.incarnation.id, phase=self._phase)

    async def watch(self) -> None:
        """End the incarnation when a pod has been silent for too long."""
        while not self.ended.is_set():
            if silent := self.incarnation.silent(time.monotonic()):
                names = ", ".join(self.incarnation.names[pod] for pod in silent)
                logger.error("incarnation %s ends: %s said nothing", self.incarnation.id, names)
                self.end(_silent(names))
            await asyncio.sleep(_CHECK_S)

    async def Join(
        self, request_iterator: AsyncIterator[group_pb2.FromPod], context: _JoinContext
    ) -> AsyncIterator[group_pb2.FromLeader]:
        await self._roles.require("worker", context)
        pod = await self._admit(await first(request_iterator), context)
        mine, name = self.incarnation, self.incarnation.names[pod]
        outgoing = self._outgoing[pod] = asyncio.Queue()
        reading = asyncio.create_task(self._listen(pod, request_iterator))
        reading.add_done_callback(lambda _: self._lost(pod, name))
        try:
            yield group_pb2.FromLeader(incarnation=mine.id, joined=group_pb2.Joined())
            yield self._shown()
            while not self.ended.is_set() and (message := await outgoing.get()) is not None:
                yield message
            yield group_pb2.FromLeader(incarnation=mine.id, end=group_pb2.EndIncarnation(failure=self.failure))
        finally:  # a pod that is gone at once cancels this call
            self._lost(pod, name)
            mine.leave(pod)
            del self._outgoing[pod]
            reading.cancel()

    def _lost(self, pod: int, name: str) -> None:
        if self._suspected is not None:
            return
        if self.incarnation.fell_silent(pod, time.monotonic()):
            self.end(_silent(name))
        else:
            self.end(failure(name, -1, FailureReason.SUPERVISOR_LOST, 0, f"{name} left the group"))

    async def _admit(self, said: group_pb2.FromPod | None, context: _JoinContext) -> int:
        if said is None or said.WhichOneof("kind") != "handshake":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of Join is its handshake")
        assert said is not None  # abort does not return
        shake, mine = said.handshake, self.incarnation
        shape = (shake.tensor, shake.pipeline, shake.ranks)
        identity = Identity(shake.service_uid, shake.revision, shake.outline, shape)
        awaited = shake.pod not in mine.names
        if mine.replaces(shake.pod, identity, shake.started_at_ms):  # it joins the next incarnation
            text = (
                f"{shake.name} was replaced while the earlier pod still runs on a node that Kubernetes does not reach"
            )
            self.end(failure(mine.names[shake.pod], -1, FailureReason.POD_REPLACED, 0, text))
        refusal = mine.join(shake.pod, shake.name, identity, time.monotonic(), shake.started_at_ms)
        if refusal is not None:
            logger.warning("a Join was refused: %s", refusal)
            mine.late += 1
            # An incarnation that waits for this pod cannot complete; the leader's own must have joined to report why.
            if awaited and 0 in mine.names and not mine.complete:
                self.end(failure(shake.name, -1, FailureReason.JOIN_REFUSED, 0, refusal))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        return shake.pod

    async def _listen(self, pod: int, messages: AsyncIterator[group_pb2.FromPod]) -> None:
        """Returns when the pod is gone."""
        async for message in messages:
            if not self.incarnation.hear(pod, message.incarnation, time.monotonic()):
                continue
            kind = message.WhichOneof("kind")
            if kind == "heartbeat":
                self._beat(pod, message.heartbeat)
            elif kind == "record":
                self._listener.record(message.record)
            elif kind == "failure":
                self._failed(message.failure)
            elif kind == "drain":
                self._listener.drain()

    def _beat(self, pod: int, beat: group_pb2.Heartbeat) -> None:
        try:
            self._listener.heartbeat(pod, beat)
        except ValueError as error:
            self.end(failure(self.incarnation.names[pod], -1, FailureReason.JOIN_REFUSED, 0, str(error)))

    def _failed(self, failure: group_pb2.Failure) -> None:
        """A rank that only lost its peer is believed when no better cause is reported within a moment."""
        logger.error("incarnation %s: %s: %s", self.incarnation.id, failure.pod, failure.message)
        if failure.reason != FailureReason.PEER_LOST:
            self.end(failure)
        elif self._suspected is None:
            self._suspected = asyncio.create_task(self._suspect(failure))

    async def _suspect(self, failure: group_pb2.Failure) -> None:
        await asyncio.sleep(_BETTER_CAUSE_S)
        self.end(failure)


def _silent(names: str) -> group_pb2.Failure:
    return failure(names, -1, FailureReason.SUPERVISOR_SILENT, 0, f"{names} said nothing for too long")
