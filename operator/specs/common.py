"""What all objects of a service share: identity, owner, labels, and the security of their containers."""

from collections.abc import Mapping
from typing import Any

from octavo.operator import names
from octavo.operator.api.v1alpha1 import API_VERSION, KIND, InferenceService

Json = dict[str, Any]  # Any: Kubernetes JSON

USER = 10001  # the user of all our images
GRACE_S = 120  # what a pod is given to finish its requests
NODE_LOST_S = 10  # how long a pod stays on a node that does not answer; Kubernetes' default is 300
TLS_DIR = "/etc/octavo/tls"
KEYS_DIR = "/etc/octavo/api"


def metadata(service: InferenceService, name: str, labels: Mapping[str, str] | None = None) -> Json:
    """Name, labels and owner of an object. The owner goes, the object goes; no finalizer is needed."""
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": {**names.common_labels(service.name), **(labels or {})},
        "ownerReferences": [owner(service)],
    }


def owner(service: InferenceService) -> Json:
    """The reference that makes an object the service's own."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": service.name, "uid": service.uid, "controller": True}


def pod_security() -> Json:
    """Pod security of the level `restricted`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    """Container security of the level `restricted`, with a read-only root."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def lost_node() -> list[Json]:
    """Tolerations: a pod on a node that does not answer is soon made anew elsewhere."""
    return [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": NODE_LOST_S,
        }
        for taint in ("not-ready", "unreachable")
    ]


def probe(path: str, port: str, period_s: int, failures: int) -> Json:
    """A plain HTTP probe: a kubelet cannot do mutual TLS. An answer may take 5 s on a busy node."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def port(name: str, number: int) -> Json:
    """A port of a container."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def scratch(name: str, size: str) -> Json:
    """A folder of the pod's own that may be written."""
    return {"name": name, "emptyDir": {"sizeLimit": size}}


def secret(name: str, of: str, entry: str | None = None) -> Json:
    """A volume of a Secret: of all its entries, or of one, as a file with the volume's name."""
    source: Json = {"secretName": of, "defaultMode": 0o444}
    if entry is not None:
        source["items"] = [{"key": entry, "path": name}]
    return {"name": name, "secret": source}


def mount(name: str, path: str, *, read_only: bool = True) -> Json:
    """A volume's place in a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def from_pod(name: str, path: str) -> Json:
    """An environment variable that holds a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
