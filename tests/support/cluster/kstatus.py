"""What tools read in a status: kstatus, which Flux and others use, and `kubectl wait`."""

from typing import Any

Json = dict[str, Any]  # Any: Kubernetes JSON


def kstatus(resource: Json) -> str:
    """InProgress, Failed or Current, as sigs.k8s.io/cli-utils/pkg/kstatus computes it for a custom resource."""
    status = resource.get("status") or {}
    if status.get("observedGeneration", resource["metadata"]["generation"]) != resource["metadata"]["generation"]:
        return "InProgress"
    for entry in status.get("conditions", ()):
        if entry["type"] == "Reconciling" and entry["status"] == "True":
            return "InProgress"
        if entry["type"] == "Stalled" and entry["status"] == "True":
            return "Failed"
    for entry in status.get("conditions", ()):
        if entry["type"] == "Ready":
            return "Current" if entry["status"] == "True" else "InProgress"
    return "Current"


def waited_for(resource: Json, kind: str) -> bool:
    """`kubectl wait --for=condition=KIND` would return: the condition is true for the present generation."""
    status = resource.get("status") or {}
    entry = next((one for one in status.get("conditions", ()) if one["type"] == kind), None)
    if entry is None or entry["status"] != "True":
        return False
    observed = entry.get("observedGeneration", status.get("observedGeneration"))
    return bool(observed >= resource["metadata"]["generation"])
