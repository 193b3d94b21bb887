"""Parts that the objects of a service share: metadata, owner, labels, security contexts, probes and volumes."""

from collections.abc import Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import API_VERSION, KIND, InferenceService
from octavo.operator.groups import names

Json = dict[str, Any]  # Any: Kubernetes JSON

USER = 10001  # uid in all images
GRACE_S = 120  # terminationGracePeriodSeconds, in which a pod finishes its requests
NODE_LOST_S = 10  # tolerationSeconds on an unreachable node; Kubernetes' default is 300
TLS_DIR = "/etc/octavo/tls"
KEYS_DIR = "/etc/octavo/api"


def metadata(service: InferenceService, name: str, labels: Mapping[str, str] | None = None) -> Json:
    """Name, labels and owner of an object. Kubernetes deletes it with its owner; no finalizer is needed."""
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": {**names.common_labels(service.name), **(labels or {})},
        "ownerReferences": [owner(service)],
    }


def owner(service: InferenceService) -> Json:
    """Owner reference to the service."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": service.name, "uid": service.uid, "controller": True}


def pod_security() -> Json:
    """securityContext of a pod, of the level `restricted`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    """securityContext of a container, of the level `restricted`, with a read-only root file system."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def lost_node() -> list[Json]:
    """Tolerations that evict a pod from an unreachable node after NODE_LOST_S."""
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
    """An HTTP probe without TLS, since a kubelet has no client certificate. On a busy node an answer may take 5 s."""
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
    """A writable emptyDir volume."""
    return {"name": name, "emptyDir": {"sizeLimit": size}}


def secret(name: str, of: str, entry: str | None = None) -> Json:
    """A volume of a Secret: all entries, or one entry as a file with the volume's name."""
    source: Json = {"secretName": of, "defaultMode": 0o444}
    if entry is not None:
        source["items"] = [{"key": entry, "path": name}]
    return {"name": name, "secret": source}


def mount(name: str, path: str, *, read_only: bool = True) -> Json:
    """A volume mount of a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def from_pod(name: str, path: str) -> Json:
    """An environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
