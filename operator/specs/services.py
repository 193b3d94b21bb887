"""Services: `ranks` names all worker pods, `leaders` the ready leader pods for the routers, and one is for clients."""

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.specs import common
from octavo.operator.specs.common import Json


def ranks(service: InferenceService) -> Json:
    """Headless Service of all worker pods, which connect to each other before they are ready."""
    selector = names.component(service.name, "worker")
    ports = [_port("group", names.JOIN, "group")]
    return _headless(service, names.ranks(service.name), selector, ports, {"publishNotReadyAddresses": True})


def leaders(service: InferenceService) -> Json:
    """Headless Service with one address for each group that serves."""
    selector = {**names.component(service.name, "worker"), names.POD_INDEX: "0"}
    return _headless(service, names.leaders(service.name), selector, [_port("serve", names.SERVE, "serve")], {})


def clients(service: InferenceService) -> Json:
    """Service for clients. Routers of an older operator, which have no port `grpc`, get no gRPC connections."""
    desired = service.spec.router.service
    metadata = common.metadata(service, service.name, {names.COMPONENT: "router"})
    if desired.annotations:
        metadata["annotations"] = dict(desired.annotations)
    outside = {
        "loadBalancerClass": desired.load_balancer_class,
        "loadBalancerSourceRanges": list(desired.load_balancer_source_ranges),
        "externalTrafficPolicy": desired.external_traffic_policy,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": desired.type,
            **{key: value for key, value in outside.items() if value},
            "selector": names.component(service.name, "router"),
            "ports": [
                _port("http", desired.port, "http"),
                {**_port("grpc", desired.grpc_port, "grpc"), "appProtocol": "kubernetes.io/h2c"},
            ],
        },
    }


def _headless(service: InferenceService, name: str, selector: dict[str, str], ports: list[Json], more: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": common.metadata(service, name, {names.COMPONENT: "worker"}),
        "spec": {"clusterIP": "None", "selector": selector, "ports": ports, **more},
    }


def _port(name: str, number: int, target: str) -> Json:
    return {"name": name, "port": number, "protocol": "TCP", "targetPort": target}
