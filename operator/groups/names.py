"""Names, labels and selectors of a service's objects. They never change while the service exists."""

from octavo.operator.groups.snapshot import Object
from octavo.shared.limits import FIRST_RANK_OFFSET, RENDEZVOUS_OFFSET

SERVICE = "octavo.dev/service"
COMPONENT = "octavo.dev/component"
GROUP = "octavo.dev/group"
REVISION = "octavo.dev/revision"
SERVED = "octavo.dev/served"  # annotation of a StatefulSet: "true" once its group has served
DOWN_SINCE = "octavo.dev/down-since"  # annotation of a StatefulSet: since when a group that has served does not
DRAIN_SINCE = "octavo.dev/drain-since"  # annotation of a StatefulSet: since when its group is replaced for a drain
RECORD = "octavo.dev/rollout"  # annotation of a ControllerRevision: how its rollout went, JSON
PODS = "octavo.dev/pods"  # annotation of a pod template: number of pods of the group; absent: 1
ACCOUNT = "octavo.dev/account"  # annotation of a router's pod template: uid of a ServiceAccount that was created again
MODEL = "octavo.dev/model"  # annotation of a pod template: spec.model.uri of the group
GANG_BACKOFF = "octavo.dev/gang-backoff"  # annotation: attempts and end of a group's back-off, JSON
KEYS_SINCE = "octavo.dev/api-keys-since"  # annotation of the routers' Deployment: their keys, and since when, JSON
POD_INDEX = "apps.kubernetes.io/pod-index"

SERVE, JOIN, STATUS, HEALTH, METRICS = 8500, 8501, 8502, 8503, 8504  # ports of a worker pod
# The worker derives these from JOIN: the rendezvous of a stage's ranks, and the port of the pod's first rank.
RENDEZVOUS, FIRST_RANK = JOIN + RENDEZVOUS_OFFSET, JOIN + FIRST_RANK_OFFSET
ROUTER_HTTP, ROUTER_METRICS, ROUTER_GRPC = 8000, 8001, 8033


def group(service: str, index: int | str) -> str:
    """StatefulSet of a group; its pods are SERVICE-INDEX-POD."""
    return f"{service}-{index}"


def ranks(service: str) -> str:
    """Headless Service with the DNS names of all worker pods, ready or not."""
    return f"{service}-ranks"


def leaders(service: str) -> str:
    """Headless Service of the ready leader pods."""
    return f"{service}-leaders"


def router(service: str) -> str:
    """Deployment, ServiceAccount, Role, RoleBinding, budget and policy of the routers."""
    return f"{service}-router"


def workers(service: str) -> str:
    """Budget and policy of the workers."""
    return f"{service}-workers"


def worker_revision(service: str, revision: str) -> str:
    """ControllerRevision that keeps the pod template of a revision of the workers."""
    return f"{service}-{revision}"


def router_revision(service: str, revision: str) -> str:
    """ControllerRevision that keeps the pod template of a revision of the routers."""
    return f"{service}-router-{revision}"


def secrets(service: str) -> tuple[str, str, str]:
    """Secrets of the CA, the workers and the routers."""
    return f"{service}-ca", f"{service}-worker-tls", f"{service}-router-tls"


def dns_name(role: str, service_uid: str) -> str:
    """SAN of the certificate of a role (worker, router, operator) of one service."""
    return f"{role}.{service_uid}.octavo"


def common_labels(service: str) -> dict[str, str]:
    """Labels of every object; list-watches select by the first."""
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
    """Label selector, as text, of one pod per group, for the scale subresource."""
    labels = {**component(service, "worker"), POD_INDEX: "0"}
    return ",".join(f"{key}={value}" for key, value in labels.items())


def label(item: Object, key: str) -> str:
    """A label of an object; "" if it does not have it."""
    return str((item["metadata"].get("labels") or {}).get(key, ""))


def annotation(item: Object, key: str) -> str:
    """An annotation of an object; "" if it does not have it."""
    return str((item["metadata"].get("annotations") or {}).get(key, ""))
