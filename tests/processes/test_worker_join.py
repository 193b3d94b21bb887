"""Join between a real supervisor's side and a real leader's side, over a socket."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.config import Config
from octavo.worker.group import pod
from octavo.worker.group.incarnation import Identity, Incarnation
from octavo.worker.group.leader import GroupServicer
from octavo.worker.tls import Roles

pytestmark = pytest.mark.timeout(60)
ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


async def test_a_stage_that_vanishes_ends_the_life_of_its_group(tmp_path: Path):
    address = f"unix:{tmp_path}/leader.sock"
    roles = Roles(Config(model="/m", served_name="m", **ADDRESSES))
    servicer = GroupServicer(Incarnation("one", Identity("", "", "f"), stages=1), roles)
    server = grpc.aio.server()
    group_pb2_grpc.add_GroupServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    entered = asyncio.Event()
    handshake = group_pb2.JoinHandshake(stage=0, fingerprint="f")
    joining = asyncio.create_task(pod.join(address, handshake, lambda _: entered.set(), group_pb2.Heartbeat))
    try:
        await asyncio.wait_for(entered.wait(), 10)
        joining.cancel()  # the channel is closed without a word
        await asyncio.wait_for(servicer.ended.wait(), 10)
        assert servicer.failure is not None and servicer.failure.reason == "SupervisorLost"
    finally:
        await server.stop(0)
