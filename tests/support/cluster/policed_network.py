"""A network in which NetworkPolicies are enforced, beside an API server without nodes.

A network namespace is a Node, with kube-router's policy controller in it; other namespaces are the pods on it. A pod
listens where it is asked to. Nothing else runs: pods get their addresses and their phase from here, not from a kubelet.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.bed import Bed, require, running, wait_until
from support.patience import PATIENCE_S

HOST, NODE, PODS = "172.31.255.1", "172.31.255.2", "10.245.0"  # addresses: of this machine, of the node, of its pods
NAME = "policed"
# Ports of this machine: of the API server, beside which a cluster's may listen on 6443; of something else; of DNS.
API_PORT, OTHER_PORT, DNS_PORT = 7443, 9999, 53
ANSWER_S = 3.0  # a packet that is dropped is not answered at all

# Listens on the ports of its arguments, on all addresses, until it is killed.
LISTEN = """
import select, socket, sys
open_ = [socket.create_server(("0.0.0.0", int(port)), backlog=64) for port in sys.argv[1:]]
print("listening", flush=True)
while True:
    for one in select.select(open_, [], [])[0]:
        one.accept()[0].close()
"""
# Prints the arguments HOST:PORT that accept a connection.
DIAL = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def accepts(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=float(sys.argv[1])).close()
    except OSError:
        return False
    return True
targets = sys.argv[2:]
with ThreadPoolExecutor(len(targets)) as threads:
    print(json.dumps([target for target, yes in zip(targets, threads.map(accepts, targets)) if yes]))
"""


@dataclass(slots=True)
class PolicedNetwork:
    bed: Bed
    _stack: ExitStack
    _addresses: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, namespace: str, ports: Iterable[int], labels: dict[str, str] | None = None) -> str:
        """A pod that listens on these ports: a new one with these labels, or one that has no node yet. Returns its
        address."""
        if labels is not None:
            spec = {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False}
            metadata = {"name": name, "labels": labels}
            self.bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=namespace)
        target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        self.bed.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
        index = len(self._addresses) + 10
        address = self._addresses[f"{namespace}/{name}"] = f"{PODS}.{index}"
        self._stack.enter_context(_pod_network(index, address))
        self._stack.enter_context(_listening(f"octavo-pod{index}", ports))
        status = {"phase": "Running", "hostIP": NODE, "podIP": address, "podIPs": [{"ip": address}]}
        patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        self.bed.kubectl("patch", "pod", name, "-n", namespace, *patch)
        return address

    def reached(self, source: str, targets: Iterable[str]) -> set[str]:
        """The targets, each HOST:PORT, that accept a connection from the pod `namespace/name`."""
        index = self._addresses[source].rpartition(".")[2]
        command = [*_inside(f"octavo-pod{index}"), sys.executable, "-S", "-c", DIAL, str(ANSWER_S), *targets]
        return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@contextmanager
def policed_network(bed: Bed, folder: Path) -> Iterator[PolicedNetwork]:
    """Skips the test where the machine does not let us make network namespaces."""
    require("network")
    program = bed.script("netpol.sh", timeout=1500).strip()
    with ExitStack() as stack:
        stack.enter_context(_node_network())
        stack.enter_context(_relay(bed))
        stack.enter_context(_served(bed))
        config = yaml.safe_load(bed.kubeconfig.read_text())
        config["clusters"][0]["cluster"] |= {"server": f"https://{HOST}:{API_PORT}", "tls-server-name": "kubernetes"}
        kubeconfig, log = folder / "netpol.conf", folder / "netpol.log"
        kubeconfig.write_text(yaml.safe_dump(config))
        command = [*_inside("octavo-policed"), program, "--kubeconfig", str(kubeconfig), "--node", NAME]
        with log.open("w") as file:
            stack.enter_context(running(command, file))
        wait_until(lambda: _has_chains(), PATIENCE_S, f"policies are enforced, log: {log}")
        yield PolicedNetwork(bed, stack)


def _has_chains() -> bool:
    shown = subprocess.run([*_inside("octavo-policed"), "iptables-save"], capture_output=True, text=True, check=True)
    return "KUBE-ROUTER-FORWARD" in shown.stdout


@contextmanager
def _served(bed: Bed) -> Iterator[None]:
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
    bed.apply(node)
    status = {"status": {"addresses": [{"type": "InternalIP", "address": NODE}]}}
    bed.kubectl("patch", "node", NAME, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    try:
        yield
    finally:
        bed.client.delete("node", NAME)


@contextmanager
def _node_network() -> Iterator[None]:
    """The node, one cable from this machine, which has a route to the node's pods."""
    with _network_namespace("octavo-policed"):
        _ip("link", "add", "octavo-policed", "type", "veth", "peer", "name", "eth0", "netns", "octavo-policed")
        try:
            _ip("addr", "add", f"{HOST}/30", "dev", "octavo-policed")
            _ip("link", "set", "octavo-policed", "up")
            _ip("-n", "octavo-policed", "addr", "add", f"{NODE}/30", "dev", "eth0")
            _ip("-n", "octavo-policed", "link", "set", "eth0", "up")
            _ip("route", "add", f"{PODS}.0/24", "via", NODE)
            _command(*_inside("octavo-policed"), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
            yield
        finally:
            _ip("link", "del", "octavo-policed")


@contextmanager
def _pod_network(index: int, address: str) -> Iterator[None]:
    name, node = f"octavo-pod{index}", "octavo-policed"
    with _network_namespace(name):
        _ip("-n", node, "link", "add", f"pod{index}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", node, "addr", "add", f"{PODS}.1/32", "dev", f"pod{index}")
        _ip("-n", node, "link", "set", f"pod{index}", "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        # By the node to other pods too, as on clouds: what is bridged is not filtered everywhere.
        _ip("-n", name, "route", "del", f"{PODS}.0/24")
        _ip("-n", name, "route", "add", f"{PODS}.1", "dev", "eth0")
        _ip("-n", name, "route", "add", "default", "via", f"{PODS}.1")
        _ip("-n", node, "route", "add", f"{address}/32", "dev", f"pod{index}")
        yield


@contextmanager
def _network_namespace(name: str) -> Iterator[None]:
    with suppress(subprocess.CalledProcessError):  # of an interrupted run
        _ip("netns", "del", name)
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        _ip("netns", "del", name)


@contextmanager
def _listening(namespace: str, ports: Iterable[int]) -> Iterator[None]:
    command = [*_inside(namespace), sys.executable, "-S", "-c", LISTEN, *map(str, ports)]
    with running(command, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        yield


@contextmanager
def _relay(bed: Bed) -> Iterator[None]:
    """The API server, which listens on the loopback alone, at the machine's end of the cable; and two other ports."""
    config = yaml.safe_load(bed.kubeconfig.read_text())
    port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
    sockets = [socket.create_server((HOST, number), backlog=64) for number in (API_PORT, OTHER_PORT, DNS_PORT)]
    for listener, forward in zip(sockets, (port, None, None), strict=True):
        threading.Thread(target=_accept, args=(listener, forward), daemon=True).start()
    try:
        yield
    finally:
        for listener in sockets:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def _accept(listener: socket.socket, port: int | None) -> None:
    with suppress(OSError):  # it is closed
        while True:
            here, _ = listener.accept()
            if port is None:
                here.close()
                continue
            there = socket.create_connection(("127.0.0.1", port))
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _inside(namespace: str) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{namespace}", "--"]


def _ip(*arguments: str) -> None:
    _command("ip", *arguments)


def _command(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def network(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicedNetwork]:
    with policed_network(bed, tmp_path_factory.mktemp("network")) as found:
        yield found
