"""What benchmarks/pod_answers.py says for simulated pods is what the operator reads of real ones."""

import asyncio
import base64
import datetime
import sys
from pathlib import Path
from typing import Any, cast

from support.patience import PATIENCE_S
from support.processes.ports import free_port

from octavo.operator.cluster.kube import Kube
from octavo.operator.cluster.pki import Authority, Pair, new_ca, new_leaf
from octavo.operator.cluster.status_client import get_router_page, get_status, router_report
from octavo.operator.groups import names
from octavo.operator.groups.snapshot import RouterReport
from octavo.proto.v1 import group_pb2

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from pod_answers import Connections, Pods, Simulated

LEADER, ROUTER, LONELY_ROUTER, NO_POD = (f"127.64.0.{number}" for number in range(2, 6))
UID, NOW = "uid-chat", datetime.datetime.now(datetime.UTC)


class Secrets:
    """The API server, which has the workers' Secret of one service."""

    def __init__(self) -> None:
        self.ca = Authority(new_ca(UID, NOW))

    def pair(self, role: str) -> Pair:
        return new_leaf(self.ca, names.dns_name(role, UID), NOW)

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:  # Any: a Kind; JSON
        assert name == "chat-worker-tls"
        leaf = self.pair("worker")
        entries = {"ca.crt": self.ca.bundle, "tls.crt": leaf.certificate, "tls.key": leaf.key}
        data = {entry: base64.b64encode(text).decode() for entry, text in entries.items()}
        return {"metadata": {"ownerReferences": [{"uid": UID}]}, "data": data}


async def test_the_operator_reads_a_serving_leader_and_a_connected_router_there() -> None:
    secrets, status_port, page_port = Secrets(), free_port(), free_port()
    pods = Pods(cast(Kube, secrets), "default")
    pods.by_address = {
        LEADER: Simulated("chat-0-0", "chat", "worker", "r1"),
        ROUTER: Simulated("chat-router-0", "chat", "router", "r2"),
        LONELY_ROUTER: Simulated("other-router-0", "other", "router", "r3"),
    }
    connections = Connections(pods)
    tasks = [
        asyncio.create_task(connections.accept(status_port, connections.status)),
        asyncio.create_task(connections.accept(page_port, connections.page)),
    ]
    identity = secrets.pair("operator"), secrets.ca.bundle
    async with asyncio.timeout(PATIENCE_S):
        while (status := await get_status(LEADER, UID, *identity, status_port)) is None:
            await asyncio.sleep(0.1)  # it does not listen yet
        assert (status.service_uid, status.revision, status.phase) == (UID, "r1", group_pb2.SERVING)
        assert status.model.digest and status.model.context_length == 8192
        again = [await get_status(LEADER, UID, *identity, status_port) for _ in range(3)]
        assert again == [status] * 3
        stranger = Authority(new_ca(UID, NOW))
        leaf = new_leaf(stranger, names.dns_name("operator", UID), NOW)
        assert await get_status(LEADER, UID, leaf, secrets.ca.bundle, status_port) is None
        assert await get_status(NO_POD, UID, *identity, status_port) is None
        connected, lonely = [await get_router_page(address, page_port) for address in (ROUTER, LONELY_ROUTER)]
        assert connected and router_report(*connected, None, 5.0) == RouterReport()
        assert lonely and router_report(*lonely, None, 5.0) == RouterReport(unconnected_since=5.0)
        assert await get_router_page(NO_POD, page_port) is None
    for task in tasks:
        task.cancel()
