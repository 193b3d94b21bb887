"""What pods answer that kwok only pretends to run: `python benchmarks/pod_answers.py --namespace SPACE`.

The operator asks each leader for its status (gRPC with the service's TLS) and each router for its health page (HTTP),
at the pods' own addresses. This process has the API server's list of pods, listens for all of 127.0.0.0/8, and answers
for the pod at the address that was dialled: a leader that serves, with the certificate of its service, and a router
that has a stream to each leader of its service. Addresses without a pod get no answer.

Of HTTP/2 it speaks what one call needs: it answers the first request of each stream, and reads no headers.
"""

import argparse
import asyncio
import base64
import json
import logging
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo.operator.cluster.kube import POD, SECRET, Kube, KubeError, Object
from octavo.operator.cluster.login import login
from octavo.operator.groups import names
from octavo.proto.v1 import group_pb2

PREFACE = 24  # bytes of a client's connection preface
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6  # types of frames
END_STREAM, ACK, END_HEADERS = 1, 1, 4  # flags
OK = b"\x88\x00\x0ccontent-type\x10application/grpc"  # :status 200, and the type, as HPACK has them
DONE = b"\x00\x0bgrpc-status\x010"
MODEL = group_pb2.ModelInfo(
    digest="0" * 64, architecture="LlamaForCausalLM", size_bytes=269_060_552, context_length=8192
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """A pod with an address."""

    name: str
    service: str
    component: str  # worker or router
    revision: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What the workers of a service have in common."""

    uid: str
    tls: ssl.SSLContext


class Pods:
    """The pods of one namespace, by address."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self._identities: dict[str, Identity] = {}  # by service
        self.by_address: dict[str, Simulated] = {}

    async def follow(self) -> None:
        """For ever."""
        while True:
            with suppress(KubeError):  # a watch ends now and then
                await self._list_and_watch()
            await asyncio.sleep(1)

    async def _list_and_watch(self) -> None:
        version = ""
        async for items, at in self._kube.pages(POD, self._namespace, labelSelector=names.SERVICE):
            version = at
            for item in items:
                self._keep(item)
        async for kind, item in self._kube.watch(POD, self._namespace, version, names.SERVICE, 600):
            if kind == "ERROR":
                return
            if kind == "DELETED":
                self.by_address.pop((item.get("status") or {}).get("podIP", ""), None)
            elif kind != "BOOKMARK":
                self._keep(item)

    def _keep(self, item: Object) -> None:
        if address := (item.get("status") or {}).get("podIP"):
            label = partial(names.label, item)
            self.by_address[address] = Simulated(
                item["metadata"]["name"], label(names.SERVICE), label(names.COMPONENT), label(names.REVISION)
            )

    def leaders(self, service: str) -> int:
        return sum(pod.service == service and pod.component == "worker" for pod in self.by_address.values())

    async def identity(self, service: str) -> Identity | None:
        """Of the workers' Secret, as their pods mount it; None: there is none."""
        if service not in self._identities:
            found = await self._kube.get(SECRET, self._namespace, names.secrets(service)[1])
            if found is None:
                return None
            entries = {name: base64.b64decode(text).decode() for name, text in found["data"].items()}
            self._identities[service] = Identity(found["metadata"]["ownerReferences"][0]["uid"], _context(entries))
        return self._identities[service]


def _context(entries: dict[str, str]) -> ssl.SSLContext:
    """As a worker's server has it: clients need a certificate of the same CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=entries["ca.crt"])
    context.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tls.crt", "tls.key"):
            (Path(folder) / name).write_text(entries[name])
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
    return context


class Connections:
    """Answers at the ports of all pods."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, port: int, answer: Callable[[socket.socket, Simulated], Awaitable[None]]) -> None:
        """For ever."""
        listener = socket.create_server(("0.0.0.0", port), backlog=4096)
        listener.setblocking(False)
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            pod = self._pods.by_address.get(connection.getsockname()[0])
            if pod is None:
                connection.close()
                continue
            task = asyncio.create_task(self._answer(answer, connection, pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, answer: Callable[[socket.socket, Simulated], Awaitable[None]], connection: socket.socket, pod: Simulated
    ) -> None:
        try:
            async with asyncio.timeout(30):
                await answer(connection, pod)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError) as error:
            logging.debug("connection to %s: %r", pod.name, error)
        finally:
            connection.close()

    async def status(self, connection: socket.socket, pod: Simulated) -> None:
        """A leader's status port."""
        if pod.component != "worker" or (identity := await self._pods.identity(pod.service)) is None:
            return
        reader, writer = await _opened(connection, identity.tls)
        status = group_pb2.GroupStatus(
            service_uid=identity.uid, revision=pod.revision, incarnation=pod.name, phase=group_pb2.SERVING,
            model=MODEL,
        ).SerializeToString()  # fmt: skip
        await reader.readexactly(PREFACE)
        writer.write(_frame(SETTINGS, 0, 0, b""))
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind in (SETTINGS, PING) and not flags & ACK:
                writer.write(_frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind in (DATA, HEADERS) and flags & END_STREAM:
                writer.write(_frame(HEADERS, END_HEADERS, stream, OK))
                writer.write(_frame(DATA, 0, stream, b"\0" + len(status).to_bytes(4, "big") + status))
                writer.write(_frame(HEADERS, END_HEADERS | END_STREAM, stream, DONE))

    async def page(self, connection: socket.socket, pod: Simulated) -> None:
        """A router's port for clients: every path is its health page."""
        if pod.component != "router":
            return
        reader, writer = await _opened(connection, None)
        await reader.readuntil(b"\r\n\r\n")
        leaders = self._pods.leaders(pod.service)
        page = {"status": "ok", "groups": {"listed": leaders, "connected": leaders, "missing": []}}
        body = json.dumps(page).encode()
        status = b"200 OK" if leaders else b"503 Service Unavailable"
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % (status, len(body)) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


async def _opened(
    connection: socket.socket, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def answer(namespace: str) -> None:
    """For ever."""
    kube = Kube(partial(login, logging.getLogger(__name__)))
    pods = Pods(kube, namespace)
    connections = Connections(pods)
    async with asyncio.TaskGroup() as group:
        group.create_task(pods.follow())
        group.create_task(connections.accept(names.STATUS, connections.status))
        group.create_task(connections.accept(names.ROUTER_HTTP, connections.page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namespace", required=True, help="of the pods")
    asyncio.run(answer(parser.parse_args().namespace))


if __name__ == "__main__":
    main()
