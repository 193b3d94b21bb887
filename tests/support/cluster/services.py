"""Builders of InferenceServices and of what a cluster makes of their objects."""

from typing import Any

from octavo.operator.api.v1alpha1 import API_VERSION, KIND, InferenceService, parse
from octavo.operator.groups.revision import router_revision

Json = dict[str, Any]  # Any: Kubernetes JSON
URI = "bundled://smollm2-135m-instruct"


def resource(name: str = "chat", *, generation: int = 1, status: Json | None = None, **spec: Any) -> Json:
    """An InferenceService as JSON; keyword arguments are fields of its spec."""
    found: Json = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": generation},
        "spec": {"model": {"uri": URI}, **spec},
    }
    return {**found, "status": status} if status else found


def service(name: str = "chat", **more: Any) -> InferenceService:
    """The same, parsed."""
    return parse(resource(name, **more))


def pod(name: str, group: int = 0, *, owner: str | None = "sts-uid", **status: Any) -> Json:
    """A worker pod with this status."""
    metadata: Json = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {"octavo.dev/service": "chat", "octavo.dev/component": "worker", "octavo.dev/group": str(group)},
    }
    if owner:
        metadata["ownerReferences"] = [
            {"kind": "StatefulSet", "name": name.rpartition("-")[0], "uid": owner, "controller": True}
        ]
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def router_of(of: InferenceService, number: int = 0, *, ready: bool = True, **status: Any) -> Json:
    """A router pod of the service's present configuration, ready or with this status."""
    found = pod(f"{of.name}-router-{number}", owner="rs-uid", **status)
    found["metadata"]["labels"] = {
        "octavo.dev/service": of.name,
        "octavo.dev/component": "router",
        "octavo.dev/revision": router_revision(of),
    }
    found["status"] |= {"phase": "Running", "conditions": [condition("Ready", "True")]} if ready else {}
    return found


def condition(kind: str, status: str, **more: Any) -> Json:
    """A condition of a pod."""
    return {"type": kind, "status": status, **more}
