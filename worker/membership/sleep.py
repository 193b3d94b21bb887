"""GroupSleep over gRPC, on both of its ways: from the caller to pod 0's supervisor, and from there to the leader."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.config import Config
from octavo.worker.errors import WorkerError
from octavo.worker.membership.status import GroupState
from octavo.worker.tls import Roles, dial

_SHOWN_S = 0.5  # longer it takes only where something else has happened since
_AWAKE_OR_ASLEEP = (group_pb2.SERVING, group_pb2.ASLEEP)

Sleeping = Callable[[group_pb2.SleepRequest], Awaitable[group_pb2.SleepReply]]
Waking = Callable[[group_pb2.WakeRequest], Awaitable[group_pb2.SleepReply]]


class LeaderSleepServicer(group_pb2_grpc.GroupSleepServicer):
    """The leader's: for its supervisor, on the pod's own socket. Its server listens for routers and other pods, too."""

    def __init__(self, sleep: Sleeping, wake: Waking) -> None:
        """Both raise WorkerError with the reason why it was not done."""
        self._sleep, self._wake = sleep, wake

    async def Sleep(
        self, request: group_pb2.SleepRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> group_pb2.SleepReply:
        await _require_this_pod(context)
        return await _answered(self._sleep(request), context)

    async def Wake(
        self, request: group_pb2.WakeRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> group_pb2.SleepReply:
        await _require_this_pod(context)
        return await _answered(self._wake(request), context)


class SupervisorSleepServicer(group_pb2_grpc.GroupSleepServicer):
    """Pod 0's supervisor's: it asks the leader. local: the leader's socket inside the pod."""

    def __init__(self, config: Config, state: GroupState, roles: Roles, local: str) -> None:
        self._config, self._state, self._roles, self._local = config, state, roles, local

    async def Sleep(
        self, request: group_pb2.SleepRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> group_pb2.SleepReply:
        await self._admit(context)
        async with dial(self._local, self._config) as channel:
            reply = await _passed_on(group_pb2_grpc.GroupSleepStub(channel).Sleep(request), context)
        return await self._shown(group_pb2.ASLEEP, reply)

    async def Wake(
        self, request: group_pb2.WakeRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> group_pb2.SleepReply:
        await self._admit(context)
        async with dial(self._local, self._config) as channel:
            reply = await _passed_on(group_pb2_grpc.GroupSleepStub(channel).Wake(request), context)
        return await self._shown(group_pb2.SERVING, reply)

    async def _shown(self, phase: "group_pb2.Phase.ValueType", reply: group_pb2.SleepReply) -> group_pb2.SleepReply:
        """Once the status says so, too: the leader tells of it by another way."""
        end = time.monotonic() + _SHOWN_S
        while self._state.phase != phase and time.monotonic() < end:
            await asyncio.sleep(0.001)
        return reply

    async def _admit(self, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await self._roles.require("operator", context)
        if not self._config.leads:
            text = f"{self._config.pod_name} does not lead its group; ask its pod 0"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        if self._state.phase not in _AWAKE_OR_ASLEEP:
            phase = group_pb2.Phase.Name(self._state.phase).removeprefix("PHASE_")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"the group does not serve: it is {phase}")


async def _require_this_pod(context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    if not context.peer().startswith("unix:"):
        text = "only this pod may ask its leader to sleep or wake; ask the supervisor of pod 0, at its --status"
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)


async def _answered(
    reply: Awaitable[group_pb2.SleepReply], context: "grpc.aio.ServicerContext[Any, Any]"
) -> group_pb2.SleepReply:
    try:
        return await reply
    except WorkerError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("abort does not return") from error


async def _passed_on(
    reply: Awaitable[group_pb2.SleepReply], context: "grpc.aio.ServicerContext[Any, Any]"
) -> group_pb2.SleepReply:
    try:
        return await reply
    except grpc.aio.AioRpcError as error:
        await context.abort(error.code(), error.details() or "")
        raise AssertionError("abort does not return") from error
