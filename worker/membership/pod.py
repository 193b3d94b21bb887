"""A supervisor's side of Join: it joins the leader's incarnation, reports its ranks, and learns when that ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Protocol

import grpc
import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.errors import WorkerError
from octavo.worker.membership.status import failure

_HEARTBEAT_S = 0.5
_REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT
)  # fmt: skip

logger = logging.getLogger(__name__)


class LeaderLost(WorkerError):
    """The stream to the leader broke, or the leader refused this pod."""


class JoinRefused(LeaderLost):
    """The leader does not want this pod; to ask again at once is no use."""


class Listener(Protocol):
    """Receives the leader's messages; every call is synchronous."""

    def joined(self, incarnation: str) -> None: ...

    def step(self, record: bytes) -> None:
        """For every rank of this pod."""

    def group_is(self, phase: "group_pb2.Phase.ValueType") -> None: ...

    def heartbeat(self) -> group_pb2.Heartbeat: ...


class Membership:
    """A pod's membership in one incarnation of its group."""

    def __init__(self, handshake: group_pb2.JoinHandshake, listener: Listener) -> None:
        self._handshake = handshake
        self._listener = listener
        self._incarnation = ""
        self._joined = asyncio.Event()
        self._outgoing: asyncio.Queue[group_pb2.FromPod | None] = asyncio.Queue()  # None: the end

    async def join(self, channel: grpc.aio.Channel) -> group_pb2.Failure | None:
        """Belong to the leader's incarnation until it ends: the failure that ended it, or None when the group drained.

        Waits for the leader to be there. Raises LeaderLost, or Refused.
        """
        beating = asyncio.create_task(self._beat())
        try:
            async for message in group_pb2_grpc.GroupStub(channel).Join(self._messages(), wait_for_ready=True):
                kind = message.WhichOneof("kind")
                if kind == "end":
                    return message.end.failure if message.end.HasField("failure") else None
                if kind == "step":
                    self._listener.step(message.step)
                elif kind == "phase":
                    self._listener.group_is(message.phase)
                elif kind == "joined":
                    self._incarnation = message.incarnation
                    self._joined.set()
                    self._listener.joined(message.incarnation)
        except grpc.aio.AioRpcError as error:
            lost = JoinRefused if error.code() in _REFUSALS else LeaderLost
            raise lost(f"{error.code().name}: {error.details()}") from error
        finally:
            beating.cancel()
            self._joined.set()
            self._outgoing.put_nowait(None)  # gRPC leaves its reader of _messages waiting
        raise LeaderLost("the leader closed the stream without a word")

    def record(self, record: bytes) -> None:
        """A rank's hello, or the result of a step."""
        self._send(group_pb2.FromPod(record=record))

    def failed(self, failure: group_pb2.Failure) -> None:
        self._send(group_pb2.FromPod(failure=failure))

    def drain(self) -> None:
        """This pod was asked to stop."""
        self._send(group_pb2.FromPod(drain=group_pb2.Drain()))

    def _send(self, message: group_pb2.FromPod) -> None:
        self._outgoing.put_nowait(message)

    async def _beat(self) -> None:
        """Until it is cancelled. A failure to beat is reported: else the leader would hear nothing at all."""
        try:
            while True:
                if self._incarnation:
                    self._send(group_pb2.FromPod(heartbeat=self._listener.heartbeat()))
                await asyncio.sleep(_HEARTBEAT_S)
        except Exception as error:
            logger.exception("no heartbeats any more")
            said = f"it cannot say how its ranks are: {type(error).__name__}: {error}"
            self.failed(failure(self._handshake.name, -1, FailureReason.SUPERVISOR_FAILED, 0, said))

    async def _messages(self) -> AsyncIterator[group_pb2.FromPod]:
        yield group_pb2.FromPod(handshake=self._handshake)
        # The leader's own pod may serve, and be asked to stop, before it has heard that it joined: what it says of no
        # incarnation would be taken for that of an earlier one.
        await self._joined.wait()
        while (message := await self._outgoing.get()) is not None:
            message.incarnation = self._incarnation
            yield message
