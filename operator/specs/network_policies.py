"""NetworkPolicies of workers and routers: allowed connections to and from them.

    clients ──> routers ──> workers <──> workers        operator ──> status of workers, pages of routers
                   └──> API server

Both may ask for names. A NetworkPolicy selects pods by label or addresses by range, and the API server is often
neither: routers may connect to any address at the ports that API servers use.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.options import Options
from octavo.operator.specs import common
from octavo.operator.specs.common import Json

DNS_PORTS = (53, 5353)  # OpenShift's DNS pods listen on 5353, behind a Service with port 53
_NAMESPACE: Json = {"podSelector": {}}


def worker_policy(service: InferenceService, options: Options) -> Json:
    """Policy of the workers. In: `serve` from routers, `status` from the operator, `metrics` and `health` from the
    peers of spec.networkPolicy.metrics, all ports from workers of the service. Out: to these workers, and DNS."""
    workers = _pods(service, "worker")
    ingress: list[Json] = [
        {"from": [workers]},
        {"from": [_pods(service, "router")], "ports": [_tcp(names.SERVE)]},
        {"from": [_operator(options)], "ports": [_tcp(names.STATUS)]},
        *_from(service.spec.network_policy.metrics, names.HEALTH, names.METRICS),
    ]
    return _policy(service, names.workers(service.name), "worker", ingress, [{"to": [workers]}])


def router_policy(service: InferenceService, options: Options) -> Json:
    """Policy of the routers. In: HTTP and gRPC from clients, HTTP from the operator, metrics from the peers of
    spec.networkPolicy.metrics. Out: to `serve` of the workers, the API server, and DNS."""
    policy = service.spec.network_policy
    ports = (names.ROUTER_HTTP, names.ROUTER_GRPC)
    if policy.clients is not None:
        clients = _from(policy.clients, *ports)
    elif service.spec.router.service.type == "ClusterIP":
        clients = _from([_NAMESPACE], *ports)
    else:
        clients = [{"ports": [_tcp(port) for port in ports]}]
    egress: list[Json] = [
        {"to": [_pods(service, "worker")], "ports": [_tcp(names.SERVE)]},
        {"ports": [_tcp(port) for port in options.api_server_ports]},
    ]
    operator: Json = {"from": [_operator(options)], "ports": [_tcp(names.ROUTER_HTTP)]}
    ingress = [*clients, operator, *_from(policy.metrics, names.ROUTER_METRICS)]
    return _policy(service, names.router(service.name), "router", ingress, egress)


def _pods(service: InferenceService, component: str) -> Json:
    return {"podSelector": {"matchLabels": names.component(service.name, component)}}


def _operator(options: Options) -> Json:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": options.operator_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "octavo-operator"}},
    }


def _from(peers: Iterable[Mapping[str, Any]], *ports: int) -> list[Json]:  # Any: Kubernetes JSON
    """The rule for these peers. No rule for no peers: a rule with an empty `from` admits everybody."""
    given = [dict(peer) for peer in peers]
    return [{"from": given, "ports": [_tcp(port) for port in ports]}] if given else []


def _policy(service: InferenceService, name: str, component: str, ingress: list[Json], egress: list[Json]) -> Json:
    dns = {"ports": [{"port": port, "protocol": protocol} for port in DNS_PORTS for protocol in ("UDP", "TCP")]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": common.metadata(service, name, {names.COMPONENT: component}),
        "spec": {
            "podSelector": {"matchLabels": names.component(service.name, component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [*egress, dns],
        },
    }


def _tcp(number: int) -> Json:
    return {"port": number, "protocol": "TCP"}
