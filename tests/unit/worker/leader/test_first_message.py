"""A client that opens a stream to the leader and says nothing is sent away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from support.worker.joins import LeaderEar

from octavo.proto.v1 import engine_pb2_grpc, group_pb2_grpc
from octavo.worker import channel
from octavo.worker.config import Config
from octavo.worker.leader.engine_service import EngineServicer
from octavo.worker.leader.request_registry import RequestRegistry
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.tls import Roles


@pytest.fixture
async def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setattr(channel, "FIRST_S", 0.3)
    address = f"unix:{tmp_path}/leader"
    config = Config("m", "m", *[address] * 5)
    roles = Roles(config)
    server = grpc.aio.server()
    engine = EngineServicer(cast(RequestRegistry, None), config, roles, "i", (tmp_path, "f"))
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    group = GroupServicer(Incarnation("i", Identity("", "", "f"), 1), roles, LeaderEar())
    group_pb2_grpc.add_GroupServicer_to_server(group, server)
    server.add_insecure_port(address)
    await server.start()
    yield address
    await server.stop(0)


@pytest.mark.parametrize("name", ["Serve", "Join"])
async def test_a_stream_without_a_first_message_is_ended(address: str, name: str) -> None:
    async with grpc.aio.insecure_channel(address) as opened:
        stub: Any = engine_pb2_grpc.EngineStub(opened) if name == "Serve" else group_pb2_grpc.GroupStub(opened)
        call = getattr(stub, name)(wait_for_ready=True)
        await call.wait_for_connection()
        with pytest.raises(grpc.aio.AioRpcError, match="first message") as caught:
            await asyncio.wait_for(call.read(), 5)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
