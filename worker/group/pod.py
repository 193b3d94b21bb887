"""A supervisor's side of Join: it enters the leader's life, heartbeats, and hears when that life ends."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.channel import OPTIONS

_HEARTBEAT_S = 0.5
# serve is started a moment before: it is looked for again soon.
_OPTIONS = (*OPTIONS, ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))


class LeaderLost(Exception):
    """The stream to the leader broke, or the leader refused this pod."""


async def join(
    address: str,
    handshake: group_pb2.JoinHandshake,
    joined: Callable[[str], None],
    heartbeat: Callable[[], group_pb2.Heartbeat],
) -> group_pb2.Failure | None:
    """Belong to the leader's life until it ends: the failure that ended it, or None when the group drained.

    joined: called with the incarnation. Raises LeaderLost.
    """
    incarnation = ""
    entered = asyncio.Event()

    async def messages() -> AsyncIterator[group_pb2.FromPod]:
        yield group_pb2.FromPod(handshake=handshake)
        await entered.wait()
        while True:
            yield group_pb2.FromPod(incarnation=incarnation, heartbeat=heartbeat())
            await asyncio.sleep(_HEARTBEAT_S)

    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        stub = group_pb2_grpc.GroupStub(channel)
        try:
            async for message in stub.Join(messages(), wait_for_ready=True):
                if message.WhichOneof("kind") == "end":
                    return message.end.failure if message.end.HasField("failure") else None
                incarnation = message.incarnation
                joined(incarnation)
                entered.set()
        except grpc.aio.AioRpcError as error:
            raise LeaderLost(f"{error.code().name}: {error.details()}") from error
    raise LeaderLost("the leader closed the stream without a word")
