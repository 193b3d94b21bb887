"""Names, labels and selectors of everything that belongs to a service. Constant over the service's life."""

from collections.abc import Mapping

from octavo.operator.snapshot import Object

SERVICE = "octavo.dev/service"
COMPONENT = "octavo.dev/component"
GROUP = "octavo.dev/group"
REVISION = "octavo.dev/revision"
TEMPLATE = "octavo.dev/pod-template"  # annotation: the pod template as it was first rendered, JSON
PODS = "octavo.dev/pods"  # annotation of a pod template: how many pods its group has; without it, one
GANG_BACKOFF = "octavo.dev/gang-backoff"  # annotation: attempts and end of a group's back-off, JSON
POD_INDEX = "apps.kubernetes.io/pod-index"

SERVE, JOIN, STATUS, HEALTH, METRICS = 8500, 8501, 8502, 8503, 8504  # ports of a worker pod
# From JOIN the worker derives where the ranks of a stage meet, and where each rank of the pod listens.
RENDEZVOUS, FIRST_RANK = JOIN + 99, JOIN + 100
ROUTER_HTTP, ROUTER_METRICS, ROUTER_GRPC = 8000, 8001, 8033

Labels = Mapping[str, str]


def group(service: str, index: int | str) -> str:
    """StatefulSet of a group; its pods are NAME-INDEX-POD."""
    return f"{service}-{index}"


def ranks(service: str) -> str:
    """Headless Service that names all worker pods, ready or not."""
    return f"{service}-ranks"


def leaders(service: str) -> str:
    """Headless Service of the leaders that serve."""
    return f"{service}-leaders"


def router(service: str) -> str:
    """Deployment, ServiceAccount, Role, RoleBinding, budget and policy of the routers."""
    return f"{service}-router"


def workers(service: str) -> str:
    """Budget and policy of the workers."""
    return f"{service}-workers"


def secrets(service: str) -> tuple[str, str, str]:
    """Secrets of the CA, the workers and the routers."""
    return f"{service}-ca", f"{service}-worker-tls", f"{service}-router-tls"


def dns_name(role: str, service_uid: str) -> str:
    """What the certificate of a role (worker, router, operator) of one service is made out to."""
    return f"{role}.{service_uid}.octavo"


def common_labels(service: str) -> dict[str, str]:
    """What every object carries; list-watches select by the first."""
    return {
        SERVICE: service,
        "app.kubernetes.io/name": "octavo",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/managed-by": "octavo",
    }


def component(service: str, name: str) -> dict[str, str]:
    """Selector of the pods of one component (worker, router)."""
    return {SERVICE: service, COMPONENT: name}


def leader_selector(service: str) -> str:
    """Selector of one pod for each group, as text, for the scale subresource."""
    labels = {**component(service, "worker"), POD_INDEX: "0"}
    return ",".join(f"{key}={value}" for key, value in labels.items())


def label(item: Object, key: str) -> str:
    """A label of an object, "" if it has none such."""
    return str((item["metadata"].get("labels") or {}).get(key, ""))


def annotation(item: Object, key: str) -> str:
    """An annotation of an object, "" if it has none such."""
    return str((item["metadata"].get("annotations") or {}).get(key, ""))
