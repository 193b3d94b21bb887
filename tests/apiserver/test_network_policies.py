"""NetworkPolicies, enforced: each connection that a service needs is let through, and no other."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import operator, service
from support.cluster.policed_network import (
    API_PORT,
    DNS_PORT,
    HOST,
    OTHER_PORT,
    PolicedNetwork,
    network,  # noqa: F401
)
from support.patience import PATIENCE_S

from octavo.operator.groups import names

WORKER = (names.SERVE, names.JOIN, names.STATUS, names.HEALTH, names.METRICS, names.FIRST_RANK, 40000)
ROUTER = (names.ROUTER_HTTP, names.ROUTER_GRPC, names.ROUTER_METRICS, 40000)
OUTSIDE = {"api": API_PORT, "dns": DNS_PORT, "other": OTHER_PORT}
LONG = {"nodeLostAfter": "1h", "notReadyAfter": "1h"}  # the node has no heartbeat
OPERATOR = {"app.kubernetes.io/name": "octavo-operator"}


@dataclass(frozen=True, slots=True)
class Place:
    """A service whose pods are in a network, and other pods. Addresses and sources by a short name."""

    bed: Bed
    network: PolicedNetwork
    space: str
    addresses: dict[str, str]
    sources: dict[str, str]

    def reached(self, source: str, target: str) -> set[Any]:
        """Ports of the target that accept a connection from the source: numbers, or names of OUTSIDE."""
        address = HOST if target == "outside" else self.addresses[target]
        ports = OUTSIDE if target == "outside" else {port: port for port in (ROUTER if target == "router" else WORKER)}
        found = self.network.reached(self.sources[source], [f"{address}:{port}" for port in ports.values()])
        return {name for name, port in ports.items() if f"{address}:{port}" in found}

    def apply(self, **spec: Any) -> None:
        self.bed.apply(service(replicas=2, disruption=LONG, **spec), namespace=self.space)

    def settles(self, source: str, target: str, ports: set[Any], what: str) -> None:
        wait_until(lambda: self.reached(source, target) == ports, PATIENCE_S, what)


@pytest.fixture(scope="module")
def place(bed: Bed, network: PolicedNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:  # noqa: F811
    """Two groups of one pod each and a router; a client in their namespace, one in another, and an operator there."""
    folder: Path = tmp_path_factory.mktemp("operator")
    with bed.namespace("policed") as space, bed.namespace("blue", team="blue") as blue:
        with operator(bed.kubeconfig, folder, space, f"--api-server-port={API_PORT}") as running:
            assert running.leads or running.get("/readyz") == 200
            here = Place(bed, network, space, {}, {})
            here.apply()
            deny = {"podSelector": {}, "policyTypes": ["Ingress"]}
            bed.apply(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": "deny"},
                    "spec": deny,
                },
                namespace=space,
            )
            for name in ("chat-0-0", "chat-1-0"):
                wait_until(lambda: bed.get("pod", name, space), PATIENCE_S, name)  # noqa: B023
            (router,) = wait_until(
                lambda: bed.objects("pods", space, "octavo.dev/component=router"), PATIENCE_S, "a router"
            )
            pods: dict[str, tuple[str, str, tuple[int, ...], dict[str, str] | None]] = {
                "worker": ("chat-0-0", space, WORKER, None),
                "peer": ("chat-1-0", space, WORKER, None),
                "router": (router["metadata"]["name"], space, ROUTER, None),
                "client": ("client", space, (), {"app": "client"}),
                "stranger": ("stranger", blue, (), {"app": "client"}),
                "operator": ("operator", space, (), OPERATOR),
                "impostor": ("impostor", blue, (), OPERATOR),
            }
            for name, (pod, where, ports, labels) in pods.items():
                here.addresses[name] = network.run(pod, where, ports, labels)
                here.sources[name] = f"{where}/{pod}"
            # One connection that is refused only once the policies of all these pods are in effect.
            here.settles("stranger", "router", set(), "policies in effect")
            here.settles("router", "worker", {names.SERVE}, "policies in effect")
            yield here


METRICS = {names.HEALTH, names.METRICS}
CLIENTS = {names.ROUTER_HTTP, names.ROUTER_GRPC}
# (source, target): the ports that are open. A router is also a pod of the namespace, to which metrics are open.
OPEN: dict[tuple[str, str], set[Any]] = {
    ("client", "router"): {*CLIENTS, names.ROUTER_METRICS},
    ("stranger", "router"): set(),
    ("worker", "router"): set(),
    ("impostor", "router"): set(),
    ("client", "worker"): METRICS,
    ("stranger", "worker"): set(),
    ("router", "worker"): {names.SERVE},
    ("operator", "worker"): {names.STATUS, *METRICS},
    ("impostor", "worker"): set(),
    ("peer", "worker"): set(WORKER),
    ("worker", "peer"): set(WORKER),
    ("router", "outside"): {"api", "dns"},
    ("worker", "outside"): {"dns"},
    ("client", "outside"): {"api", "dns", "other"},
}


@pytest.mark.parametrize(("source", "target"), OPEN)
def test_a_connection_is_let_through_exactly_where_it_is_needed(place: Place, source: str, target: str) -> None:
    assert place.reached(source, target) == OPEN[source, target]


def test_peers_are_let_in_by_the_fields_and_lose_it_with_them(place: Place) -> None:
    blue = [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]
    place.apply(networkPolicy={"clients": blue})
    place.settles("stranger", "router", CLIENTS, "the clients of another namespace")
    place.settles("client", "router", {names.ROUTER_METRICS}, "no others")
    place.apply(networkPolicy={"clients": [], "metrics": blue})
    place.settles("stranger", "router", {names.ROUTER_METRICS}, "their metrics")
    place.settles("stranger", "worker", METRICS, "their metrics")
    place.settles("client", "router", set(), "no others")
    assert place.reached("operator", "router") == {names.ROUTER_HTTP}


def test_without_policies_of_the_service_the_namespaces_are_left(place: Place) -> None:
    place.apply(networkPolicy={"mode": "none"})
    place.settles("worker", "outside", set(OUTSIDE), "no limits to the outside")
    assert place.reached("client", "router") == set(), "the namespace is closed by its own policy"
    place.bed.client.delete("networkpolicy", "deny", place.space)
    place.settles("stranger", "router", set(ROUTER), "no policy at all")
    place.apply()
    place.settles("stranger", "router", set(), "the operator's policies, again")
    assert place.reached("client", "router") == OPEN["client", "router"]
