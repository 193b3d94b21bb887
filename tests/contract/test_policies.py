"""NetworkPolicies let in the pods that they mean: their selectors match the labels that pods really have."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.services import service

from octavo.operator.groups import names
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan

Json = dict[str, Any]  # Any: Kubernetes JSON
HELPERS = Path(__file__).parents[2] / "charts/octavo/templates/_helpers.tpl"
PLANNED = {
    (item.object["kind"], item.object["metadata"]["name"]): item.object
    for item in plan(service(), Snapshot(), Options(operator_namespace="ours"), 0.0).apply
}
WORKERS = PLANNED["NetworkPolicy", names.workers("chat")]["spec"]
ROUTERS = PLANNED["NetworkPolicy", names.router("chat")]["spec"]


def labels_of(kind: str, name: str) -> Json:
    found: Json = PLANNED[kind, name]["spec"]["template"]["metadata"]["labels"]
    return found


def labels_of_the_operator() -> Json:
    """Labels that the chart writes as they stand."""
    block = HELPERS.read_text().partition('define "octavo.selector"')[2].partition("{{- end }}")[0]
    lines = [line.split(": ") for line in block.splitlines() if ": " in line and "{{" not in line]
    return {key.strip(): value.strip() for key, value in lines}


PODS = {
    "worker": labels_of("StatefulSet", "chat-0"),
    "router": labels_of("Deployment", names.router("chat")),
    "operator": labels_of_the_operator(),
    "another service's worker": labels_of("StatefulSet", "chat-0") | {names.SERVICE: "other"},
}


def selects(selector: Json, labels: Json) -> bool:
    return bool(selector["matchLabels"].items() <= labels.items())


def admitted(spec: Json, port: int, direction: str = "ingress") -> set[str]:
    """Peers of connections to this port: of PODS, "the namespace" and "any peer"."""
    found = set()
    for rule in spec[direction]:
        if "ports" in rule and port not in [entry["port"] for entry in rule["ports"]]:
            continue
        peers = rule.get("from" if direction == "ingress" else "to")
        if peers is None:
            found.add("any peer")
        assert peers != [], "an empty list admits everybody"
        for peer in peers or ():
            if peer == {"podSelector": {}}:
                found.add("the namespace")
            else:
                found |= {name for name, labels in PODS.items() if selects(peer["podSelector"], labels)}
    return found


@pytest.mark.parametrize(
    ("port", "peers"),
    [
        (names.SERVE, {"router", "worker"}),
        (names.STATUS, {"operator", "worker"}),
        (names.JOIN, {"worker"}),
        (names.RENDEZVOUS, {"worker"}),
        (names.FIRST_RANK + 7, {"worker"}),
        (40000, {"worker"}),
        (names.HEALTH, {"the namespace", "worker"}),
        (names.METRICS, {"the namespace", "worker"}),
    ],
)
def test_a_workers_port_is_open_to_the_peers_that_need_it_and_every_port_to_workers_of_its_service(
    port: int, peers: set[str]
) -> None:
    assert admitted(WORKERS, port) == peers


@pytest.mark.parametrize(
    ("port", "peers"),
    [
        (names.ROUTER_HTTP, {"the namespace", "operator"}),
        (names.ROUTER_GRPC, {"the namespace"}),
        (names.ROUTER_METRICS, {"the namespace"}),
        (40000, set()),
    ],
)
def test_a_routers_ports_are_open_to_the_namespace_and_no_other_is(port: int, peers: set[str]) -> None:
    assert admitted(ROUTERS, port) == peers


def test_routers_connect_to_workers_the_api_server_and_dns_and_workers_to_workers_and_dns() -> None:
    for spec, peers in ((ROUTERS, {"worker"}), (WORKERS, {"worker"})):
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert admitted(spec, names.SERVE, "egress") == peers
        assert admitted(spec, 53, "egress") >= {"any peer"}
    for port, of_routers in ((names.JOIN, set()), (40000, set()), (443, {"any peer"}), (6443, {"any peer"})):
        assert admitted(ROUTERS, port, "egress") == of_routers
        assert admitted(WORKERS, port, "egress") == {"worker"}


def test_each_port_of_the_clients_service_is_one_that_routers_have_and_listen_on() -> None:
    (container,) = PLANNED["Deployment", names.router("chat")]["spec"]["template"]["spec"]["containers"]
    has = {port["name"]: port["containerPort"] for port in container["ports"]}
    service_ports = {port["name"]: port for port in PLANNED["Service", "chat"]["spec"]["ports"]}
    assert {name: port["port"] for name, port in service_ports.items()} == {"http": 80, "grpc": 8033}
    for name, port in service_ports.items():
        assert port["targetPort"] == name
        assert f"--{name}=0.0.0.0:{has[name]}" in container["args"]


def test_one_worker_at_a_time_may_be_evicted_and_workers_that_serve_nothing_always() -> None:
    budget = PLANNED["PodDisruptionBudget", names.workers("chat")]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert selects(budget["selector"], PODS["worker"]) and not selects(budget["selector"], PODS["router"])


def test_policies_stand_before_the_pods_that_they_are_named_after() -> None:
    for spec, whose in ((WORKERS, "worker"), (ROUTERS, "router")):
        assert {name for name, labels in PODS.items() if selects(spec["podSelector"], labels)} == {whose}


def test_the_operator_is_let_in_from_its_own_namespace_only() -> None:
    for spec in (WORKERS, ROUTERS):
        (peer,) = next(rule["from"] for rule in spec["ingress"] if "namespaceSelector" in str(rule))
        assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ours"}
