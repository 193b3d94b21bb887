"""What prove.py does to a service, and how it looks at its processes: this machine is the node, so they are here."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster.bed import Bed, wait_until

ROOT = Path(__file__).parents[3]
CHART, VALUES = ROOT / "charts" / "octavo", ROOT / "tests" / "cluster" / "bed" / "values.yaml"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
INSTALL_S = 90
ASK_S = 60
RANK = b"octavo.worker.rank"
Json = dict[str, Any]  # Any: JSON


def install(bed: Bed, namespace: str) -> None:
    """The chart with its default values, but for the images."""
    wait = f"--timeout={INSTALL_S}s"
    bed.helm(
        "-n",
        namespace,
        "install",
        "octavo",
        str(CHART),
        "--values",
        str(VALUES),
        "--wait",
        wait,
        timeout=INSTALL_S + 10,
    )


def volume(namespace: str, folder: Path) -> tuple[Json, ...]:
    """A folder of the node as the claim `models`."""
    spec: Json = {"storageClassName": "", "accessModes": ["ReadOnlyMany"]}
    claimed = {
        **spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": "models"},
    }  # fmt: skip
    claim = {**spec, "volumeName": "models", "resources": {"requests": {"storage": "1Gi"}}}
    named = {"name": "models", "namespace": namespace}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"}, "spec": claimed},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": claim},
    )


@dataclass(frozen=True, slots=True)
class Service:
    """One InferenceService."""

    bed: Bed
    namespace: str
    name: str

    def apply(self, model: str, accelerator: str, tensor: int, **more: Any) -> None:  # Any: other fields of the spec
        spec: Json = {
            "model": {"uri": f"pvc://models/{model}", "contextLength": 2048},
            "replicas": 1,
            "accelerator": {"resource": accelerator},
            "parallelism": {"tensor": tensor},
            **more,
        }
        if accelerator == "cpu":
            spec["engine"] = {"kvCacheMemory": "128Mi"}
        metadata = {"name": self.name, "namespace": self.namespace}
        self.bed.apply(
            {"apiVersion": "octavo.dev/v1alpha1", "kind": "InferenceService", "metadata": metadata, "spec": spec}
        )

    def status(self) -> Json:
        return dict((self.bed.get("infsvc", self.name, self.namespace) or {}).get("status") or {})

    def condition(self, kind: str) -> Json:
        return next((one for one in self.status().get("conditions", []) if one["type"] == kind), {})

    def summary(self) -> Json:
        ready = self.condition("Ready")
        return {"ready": ready.get("status"), "reason": ready.get("reason"), "groups": self.status().get("groups")}

    def ready(self, timeout_s: float) -> None:
        """Ready, and reached at its address: a router or kube-proxy may know of it a moment later."""
        wait_until(lambda: self.condition("Ready").get("status") == "True", timeout_s, "Ready, of the service")
        wait_until(self._is_reached, timeout_s, "an answer at the address of the Service")

    def restarted(self, timeout_s: float) -> None:
        """Ready in another incarnation, of whose beginning the status says why."""

        def failed() -> bool:
            return any(group.get("lastFailure") for group in self.status().get("groups", []))

        wait_until(failed, timeout_s, "a status that tells of the killed rank")
        self.ready(timeout_s)

    def complaint(self, words: str) -> str:
        """What a condition says with these words in it."""
        said = (str(one.get("message", "")) for one in self.status().get("conditions", []))
        return next((one for one in said if words in one), "")

    @property
    def address(self) -> str:
        found = self.bed.get("service", self.name, self.namespace)
        assert found is not None, "the service has no Service"
        return f"http://{found['spec']['clusterIP']}"

    def _is_reached(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self) -> Json:
        """The greedy answer to a prompt, through whichever router Kubernetes picks."""
        with urllib.request.urlopen(f"{self.address}/v1/models", timeout=ASK_S) as answer:
            model = json.load(answer)["data"][0]["id"]
        body = {"model": model, "prompt": [17, 18, 19, 20], "max_tokens": 24, "temperature": 0}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/v1/completions", json.dumps(body).encode(), headers)
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            said = json.load(answer)
        assert said["usage"]["completion_tokens"] > 0, said
        return {
            "model": model, "text": said["choices"][0]["text"], "tokens": said["usage"]["completion_tokens"],
            "answer_s": round(time.monotonic() - begin, 3),
        }  # fmt: skip

    def pods(self, component: str) -> list[Json]:
        selector = f"octavo.dev/service={self.name},octavo.dev/component={component}"
        return self.bed.objects("pods", self.namespace, selector)

    def devices(self) -> list[str]:
        """What each rank said that it computes on, the last time."""
        found = []
        for pod in self.pods("worker"):
            log = self.bed.kubectl("-n", self.namespace, "logs", pod["metadata"]["name"], timeout=20)
            found += [line.rpartition("device: ")[2] for line in log.splitlines() if " device: " in line]
        return found[-self._ranks() :]

    def _ranks(self) -> int:
        spec = (self.bed.get("infsvc", self.name, self.namespace) or {})["spec"]
        return int(spec.get("parallelism", {}).get("tensor", 1))

    def ranks(self) -> list[int]:
        """Pids on this machine, of the ranks of the service's pods."""
        uids = [pod["metadata"]["uid"] for pod in self.pods("worker")]
        return [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if _text(folder / "cmdline").startswith(RANK)
            and any(uid.encode() in _text(folder / "cgroup") for uid in uids)
        ]

    def kill_rank(self) -> int:
        """kill -9 of one."""
        pids = self.ranks()
        assert pids, "no process of this machine is a rank of the service's pods"
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]

    def on_gpus(self) -> Json:
        """MiB by pid, of what nvidia-smi says that uses a GPU; and the pids of the service's ranks."""
        lines = (line.partition(",") for line in _nvidia_smi("--query-compute-apps=pid,used_memory"))
        return {"used_mib": {pid.strip(): used.strip() for pid, _, used in lines}, "ranks": self.ranks()}

    def delete(self, timeout_s: float) -> None:
        """Returns when its pods are gone too."""
        words = ("delete", "infsvc", self.name, f"--timeout={timeout_s:.0f}s")
        self.bed.kubectl("-n", self.namespace, *words, timeout=timeout_s + 10)
        wait_until(lambda: not self.pods("worker") + self.pods("router"), timeout_s, "the end of the service's pods")


def memory_mib() -> list[int]:
    """Of each GPU, what is in use."""
    return [int(line) for line in _nvidia_smi("--query-gpu=memory.used")]


def _nvidia_smi(query: str) -> list[str]:
    said = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True, timeout=20
    )
    return [line for line in said.stdout.splitlines() if line.strip()]


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""
