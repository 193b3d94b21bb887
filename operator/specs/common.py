"""Parts that the objects of a service share: metadata, owner, labels, security contexts, probes and volumes."""

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import API_VERSION, KIND, Disruption, InferenceService
from octavo.operator.groups import names

Json = dict[str, Any]  # Any: Kubernetes JSON

USER = 10001  # uid in all images
TLS_DIR = "/etc/octavo/tls"
KEYS_DIR = "/etc/octavo/api"


def metadata(service: InferenceService, name: str, labels: Mapping[str, str] | None = None) -> Json:
    """Name, labels and owner of an object. Kubernetes deletes it with its owner; no finalizer is needed."""
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": {**names.common_labels(service.name), **(labels or {})},
        "ownerReferences": [owner(service.name, service.uid)],
    }


def owner(name: str, uid: str) -> Json:
    """Owner reference to the service of this name."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, "controller": True}


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


def tolerations(disruption: Disruption, users: Iterable[Mapping[str, Any]] = ()) -> list[Json]:
    """Tolerations of a pod: until when it stays on a node that is not ready or unreachable, and the user's own.

    The shortest of several tolerations of one taint wins, so the operator's gives way to a user's of the same taint.
    """
    given = [dict(item) for item in users]
    stays_s = {"not-ready": disruption.not_ready_s, "unreachable": disruption.node_lost_s}
    taints = {f"node.kubernetes.io/{name}": seconds for name, seconds in stays_s.items()}
    own = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key, seconds in taints.items()
        if not any(item.get("key", "") in ("", key) and item.get("effect", "") in ("", "NoExecute") for item in given)
    ]
    return [*own, *given]


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


def secret(name: str, of: str) -> Json:
    """A volume of a Secret with all its entries. Pods wait until it exists."""
    return {"name": name, "secret": {"secretName": of, "defaultMode": 0o444}}


def optional_entry(name: str, of: str, entry: str) -> Json:
    """A volume with one entry of a Secret, as a file with the volume's name. It is empty while the Secret or the entry
    is missing, also when one was deleted under a running pod."""
    source = {"secretName": of, "defaultMode": 0o444, "items": [{"key": entry, "path": name}], "optional": True}
    return {"name": name, "secret": source}


def mount(name: str, path: str, *, read_only: bool = True) -> Json:
    """A volume mount of a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def from_pod(name: str, path: str) -> Json:
    """An environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
