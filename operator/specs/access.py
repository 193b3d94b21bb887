"""RBAC of the routers, which watch the EndpointSlices of their namespace. Workers have no permissions."""

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.specs import common
from octavo.operator.specs.common import Json

_RBAC = "rbac.authorization.k8s.io"


def service_account(service: InferenceService) -> Json:
    """ServiceAccount of the routers."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(service)}


def role(service: InferenceService) -> Json:
    """Role of the routers. The operator must have this permission itself to grant it."""
    rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": _metadata(service), "rules": [rule]}


def role_binding(service: InferenceService) -> Json:
    """RoleBinding of the routers."""
    name = names.router(service.name)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(service),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": service.namespace}],
    }


def _metadata(service: InferenceService) -> Json:
    return common.metadata(service, names.router(service.name), {names.COMPONENT: "router"})
