"""Sleep and wake are asked of the leader from within its pod alone, though its server listens for others, too."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.patience import PATIENCE_S

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.membership.sleep import LeaderSleepServicer

MOVED = group_pb2.SleepReply(changed=True, moved_bytes=7)


async def move(_: object) -> group_pb2.SleepReply:
    return MOVED


@pytest.fixture
async def addresses(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Of one server: a socket of the pod, and one that others reach."""
    server = grpc.aio.server()
    group_pb2_grpc.add_GroupSleepServicer_to_server(LeaderSleepServicer(move, move), server)
    own = f"unix:{tmp_path}/leader.sock"
    server.add_insecure_port(own)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield own, f"127.0.0.1:{port}"
    await server.stop(0)


async def test_the_pod_may_and_others_may_not_also_without_tls(addresses: tuple[str, str]) -> None:
    own, open_to_all = addresses
    async with grpc.aio.insecure_channel(own) as channel:
        stub = group_pb2_grpc.GroupSleepStub(channel)
        assert await stub.Sleep(group_pb2.SleepRequest(), timeout=PATIENCE_S) == MOVED
        assert await stub.Wake(group_pb2.WakeRequest(), timeout=PATIENCE_S) == MOVED
    async with grpc.aio.insecure_channel(open_to_all) as channel:
        stub = group_pb2_grpc.GroupSleepStub(channel)
        calls = (stub.Sleep(group_pb2.SleepRequest(), timeout=PATIENCE_S),
                 stub.Wake(group_pb2.WakeRequest(), timeout=PATIENCE_S))  # fmt: skip
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError, match="ask the supervisor of pod 0") as refusal:
                await call
            assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED
