"""PodDisruptionBudgets and NetworkPolicies of workers and routers."""

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.options import Options
from octavo.operator.specs import common
from octavo.operator.specs.common import Json


def worker_budget(service: InferenceService) -> Json:
    """Budget of the workers: one eviction at a time; a pod that is not ready may always be evicted."""
    return _budget(service, names.workers(service.name), "worker")


def router_budget(service: InferenceService) -> Json:
    """Budget of the routers: one eviction at a time."""
    return _budget(service, names.router(service.name), "router")


def _budget(service: InferenceService, name: str, component: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": common.metadata(service, name, {names.COMPONENT: component}),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.component(service.name, component)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def worker_policy(service: InferenceService, options: Options) -> Json:
    """Policy of the workers: `serve` from routers, `status` from the operator, `metrics` and `health` from everywhere,
    all ports from workers of the service."""
    workers = {"podSelector": {"matchLabels": names.component(service.name, "worker")}}
    routers = {"podSelector": {"matchLabels": names.component(service.name, "router")}}
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": options.operator_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "octavo-operator"}},
    }
    ingress: list[Json] = [
        {"from": [workers]},
        {"from": [routers], "ports": [_port(names.SERVE)]},
        {"from": [operator], "ports": [_port(names.STATUS)]},
        {"ports": [_port(names.HEALTH), _port(names.METRICS)]},
    ]
    return _policy(service, names.workers(service.name), "worker", ingress)


def router_policy(service: InferenceService) -> Json:
    """Policy of the routers: HTTP, gRPC and metrics from everywhere."""
    ports = [_port(number) for number in (names.ROUTER_HTTP, names.ROUTER_GRPC, names.ROUTER_METRICS)]
    return _policy(service, names.router(service.name), "router", [{"ports": ports}])


def _policy(service: InferenceService, name: str, component: str, ingress: list[Json]) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": common.metadata(service, name, {names.COMPONENT: component}),
        "spec": {
            "podSelector": {"matchLabels": names.component(service.name, component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _port(number: int) -> Json:
    return {"port": number, "protocol": "TCP"}
