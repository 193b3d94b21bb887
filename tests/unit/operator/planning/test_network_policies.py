"""NetworkPolicies follow spec.networkPolicy and the type of the Service, and go when they are not wanted."""

from typing import Any

import pytest
from support.cluster.services import resource, service

from octavo.operator.api.v1alpha1 import parse_stored
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan

Json = dict[str, Any]  # Any: Kubernetes JSON
OTHERS = [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
HERE = [{"podSelector": {}}]


def planned(**spec: Any) -> dict[str, Json]:
    """The policies, by name."""
    made = plan(service(**spec), Snapshot(), Options(), 0.0).apply
    return {
        item.object["metadata"]["name"]: dict(item.object) for item in made if item.object["kind"] == "NetworkPolicy"
    }


def peers(policy: Json, port: int) -> Any:
    """`from` of the only rule of this port beside the operator's; None: it has none; "closed": there is no rule."""
    rules = [rule for rule in policy["spec"]["ingress"] if "octavo-operator" not in str(rule)]
    found = [rule for rule in rules if port in [one["port"] for one in rule.get("ports", ())]]
    return found[0].get("from") if found else "closed"


def test_peers_come_from_the_fields() -> None:
    made = planned(networkPolicy={"clients": OTHERS, "metrics": OTHERS[:1]})
    assert [peers(made["chat-router"], port) for port in (8000, 8033, 8001)] == [OTHERS, OTHERS, OTHERS[:1]]
    assert [peers(made["chat-workers"], port) for port in (8503, 8504)] == [OTHERS[:1]] * 2


def test_an_empty_list_admits_no_pod() -> None:
    made = planned(networkPolicy={"clients": [], "metrics": []})
    assert [peers(made["chat-router"], port) for port in (8000, 8033, 8001)] == ["closed"] * 3
    assert [peers(made["chat-workers"], port) for port in (8503, 8504)] == ["closed"] * 2
    assert all(rule["from"] for name in made for rule in made[name]["spec"]["ingress"])


@pytest.mark.parametrize(("exposure", "clients"), [("ClusterIP", HERE), ("NodePort", None), ("LoadBalancer", None)])
def test_a_service_for_the_outside_admits_it_unless_clients_are_given(exposure: str, clients: Any) -> None:
    router = {"service": {"type": exposure, "insecure": True}}
    assert peers(planned(router=router)["chat-router"], 8000) == clients
    assert peers(planned(router=router)["chat-router"], 8001) == HERE
    given = planned(router=router, networkPolicy={"clients": OTHERS})
    assert peers(given["chat-router"], 8000) == OTHERS


def test_the_ports_of_the_api_server_are_the_operators() -> None:
    made = plan(service(), Snapshot(), Options(api_server_ports=(16443,)), 0.0).apply
    (router,) = [item.object for item in made if item.object["metadata"]["name"] == "chat-router"
                 and item.object["kind"] == "NetworkPolicy"]  # fmt: skip
    assert {"ports": [{"port": 16443, "protocol": "TCP"}]} in router["spec"]["egress"]


def test_with_none_there_are_no_policies_and_the_services_own_go() -> None:
    assert planned(networkPolicy={"mode": "none"}) == {}
    before = [dict(policy) for policy in planned().values()]
    for policy in before:
        policy["metadata"] = {**policy["metadata"], "uid": f"uid-{policy['metadata']['name']}"}
    users = {**before[0], "metadata": {**before[0]["metadata"], "name": "mine"}}
    foreign = {**before[0], "metadata": {**before[0]["metadata"], "ownerReferences": []}}
    snapshot = Snapshot(children=(*before, users, foreign))
    gone = plan(service(networkPolicy={"mode": "none"}), snapshot, Options(), 0.0).delete
    assert [(item.kind, item.name, item.uid) for item in gone] == [
        ("NetworkPolicy", "chat-workers", "uid-chat-workers"),
        ("NetworkPolicy", "chat-router", "uid-chat-router"),
    ]
    assert plan(service(), snapshot, Options(), 0.0).delete == ()


def test_the_service_for_clients_has_what_a_load_balancer_needs() -> None:
    desired = {
        "type": "LoadBalancer",
        "insecure": True,
        "annotations": {"example.com/internal": "true"},
        "loadBalancerClass": "example.com/nlb",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalTrafficPolicy": "Local",
    }

    def made(**fields: Any) -> Json:
        applies = plan(service(router={"service": fields}), Snapshot(), Options(), 0.0).apply
        return next(dict(item.object) for item in applies if item.object["metadata"]["name"] == "chat")

    outside, plain = made(**desired), made()
    assert outside["metadata"]["annotations"] == desired["annotations"] and "annotations" not in plain["metadata"]
    given = {key: value for key, value in desired.items() if key not in ("insecure", "annotations")}
    assert given.items() <= outside["spec"].items()
    assert not plain["spec"].keys() & (given.keys() - {"type"})


NEWER: Json = {"podSelector": {"matchNewer": {"team": "blue"}}}
UNKNOWN: list[tuple[Json, set[str]]] = [
    ({"networkPolicy": {"clients": [NEWER]}}, {"NetworkPolicy chat-router", "NetworkPolicy chat-workers"}),
    ({"networkPolicy": {"newer": True}}, {"NetworkPolicy chat-router", "NetworkPolicy chat-workers"}),
    ({"router": {"service": {"newer": True}}}, {"NetworkPolicy chat-router", "Service chat"}),
    ({"newer": True}, set()),
]


def applied(snapshot: Snapshot, **spec: Any) -> dict[str, Json]:
    """The applied objects, by kind and name, of a spec of the API server."""
    made = plan(parse_stored(resource(**spec)), snapshot, Options(), 0.0).apply
    return {f"{one.object['kind']} {one.object['metadata']['name']}": dict(one.object) for one in made}


@pytest.mark.parametrize(("spec", "left"), UNKNOWN)
def test_what_admits_clients_is_left_alone_where_a_field_on_it_is_unknown(spec: Json, left: set[str]) -> None:
    known = applied(Snapshot())
    assert applied(Snapshot(), **spec).keys() == known.keys()
    assert applied(Snapshot(children=tuple(known.values())), **spec).keys() == known.keys() - left


def test_a_peer_that_is_not_wholly_known_is_none() -> None:
    made = applied(Snapshot(), networkPolicy={"clients": [NEWER, *OTHERS], "metrics": [NEWER]})
    assert peers(made["NetworkPolicy chat-router"], 8000) == OTHERS
    assert peers(made["NetworkPolicy chat-router"], 8001) == "closed"
    assert peers(made["NetworkPolicy chat-workers"], 8503) == "closed"
