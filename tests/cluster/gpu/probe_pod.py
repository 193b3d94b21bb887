"""A pod that is none of ours: as restricted as they are, it computes on the GPUs that it was given, and ends."""

from typing import Any

import thin_images
from device_plugin import RESOURCE
from support.cluster.bed import Bed, wait_until

POD_S = 60
Json = dict[str, Any]  # Any: JSON

PROBE = """
import json, os, torch
found = {"uid": os.getuid(), "torch": torch.__version__, "cuda": torch.cuda.is_available()}
found["gpus"] = torch.cuda.device_count()
if found["cuda"]:
    x = torch.ones(64, 64, device="cuda")
    found |= {"name": torch.cuda.get_device_name(), "sum": float((x @ x).sum())}
print(json.dumps(found))
"""


CONTAINER: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def run(bed: Bed, namespace: str, gpus: int) -> str:
    """What a pod with that many GPUs says of them. It is as restricted as the operator's own pods."""
    container: Json = {
        "name": "probe", "image": "localhost/octavo-worker:test", "imagePullPolicy": "Never",
        "command": ["python3", "-c", PROBE], "securityContext": CONTAINER,
        "resources": {"limits": {RESOURCE: str(gpus)}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    security = {"runAsNonRoot": True, "runAsUser": thin_images.USER, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "securityContext": security,
        "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    metadata = {"name": "probe", "namespace": namespace, "labels": {"octavo-bed": "probe"}}
    bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def phase() -> str:
        seen = str((bed.get("pod", "probe", namespace) or {})["status"].get("phase"))
        return seen if seen in ("Succeeded", "Failed") else ""

    ended = wait_until(phase, POD_S, "the end of the pod `probe`")
    said = bed.kubectl("-n", namespace, "logs", "probe", timeout=20).strip()
    assert ended == "Succeeded", f"the pod `probe` failed: {said[-2000:]}"
    bed.kubectl("-n", namespace, "delete", "pod", "probe", "--timeout=60s", timeout=70)
    return said
