"""Octavo on the bed's cluster, as its users meet it: a helm release in a namespace of its own, services, their pods."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from support.cluster.bed import COMMAND_S, LOOK_S, BedError, Cluster, locked, wait_until
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S, Bound

from octavo.operator.groups.names import ROUTER_METRICS

ROOT = Path(__file__).parents[3]
CHART, VALUES = ROOT / "charts" / "octavo", ROOT / "tests" / "cluster" / "bed" / "values.yaml"
SERVES_S = 80  # twice what a start may take
LETTERS_CONTEXT = 65_536
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True, slots=True)
class Release:
    """`helm install octavo`, serving its own namespace. `models` is a folder of the nodes, and the volume `models`."""

    bed: Cluster
    namespace: str
    models: Path

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = COMMAND_S) -> str:
        return self.bed.kubectl("-n", self.namespace, *args, stdin=stdin, timeout=timeout)

    def helm(self, *args: str, timeout: float = COMMAND_S) -> str:
        return self.bed.helm("-n", self.namespace, *args, timeout=timeout)

    def operators(self, replicas: int) -> None:
        """Scales the operator, and waits until that many run."""
        self.kubectl("scale", "deployment/octavo-operator", f"--replicas={replicas}")
        selector = "app.kubernetes.io/name=octavo-operator"
        self.kubectl("rollout", "status", "deployment/octavo-operator", f"--timeout={PATIENCE_S:.0f}s")
        wait_until(
            lambda: len(self.bed.objects("pods", self.namespace, selector)) == replicas,
            PATIENCE_S,
            f"{replicas} operators",
        )

    def service(self, name: str, **spec: Any) -> "Service":  # Any: the fields of spec
        """Applies a service; it is not waited for. `model` is a folder of the volume, or a whole uri."""
        service = Service(self, name)
        service.apply(**spec)
        return service

    def letters(self) -> "Service":
        """Of one group that serves the alphabet; tests share it, and leave it with a spec that serves as well."""
        letters = Service(self, "letters")
        if self.bed.get("infsvc", letters.name, self.namespace):
            letters.change(replicas=1)
        else:
            letters.apply(replicas=1, engine={"kvCacheMemory": "128Mi"})
        letters.settled()
        return letters

    def left(self, name: str) -> list[str]:
        """What is there of a service, the service itself included."""
        kinds = "pods,statefulsets,controllerrevisions,deployments,services,secrets,serviceaccounts,roles,rolebindings"
        kinds += ",pdb,networkpolicies"
        found = self.bed.objects(kinds, self.namespace, f"octavo.dev/service={name}")
        itself = self.bed.get("infsvc", name, self.namespace)
        return [f"{item['kind']}/{item['metadata']['name']}" for item in (*found, *([itself] if itself else ()))]


@dataclass(frozen=True, slots=True)
class Service:
    """One InferenceService."""

    release: Release
    name: str

    def apply(self, model: str = "letters", **spec: Any) -> None:  # Any: the fields of spec
        uri = model if "://" in model else f"pvc://models/{model}"
        metadata = {"name": self.name, "namespace": self.release.namespace}
        desired = {"model": {"uri": uri}, **spec}
        self.release.bed.apply(
            {
                "apiVersion": "octavo.dev/v1alpha1",
                "kind": "InferenceService",
                "metadata": metadata,
                "spec": desired,
            }
        )

    def spec(self) -> dict[str, Any]:  # Any: its fields
        """With the defaults of what was not said."""
        return dict(self.object()["spec"])

    def change(self, **fields: Any) -> None:  # Any: the fields of spec; None takes one back
        """Applies the service as it is but for these."""
        kept = {**self.spec(), **fields}
        self.apply(kept.pop("model")["uri"], **{name: value for name, value in kept.items() if value is not None})

    def object(self) -> dict[str, Any]:
        found = self.release.bed.get("infsvc", self.name, self.release.namespace)
        assert found is not None, f"there is no service {self.name}"
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        """As it is for the present spec; empty until the operator has seen that."""
        found = self.object()
        generation = found["metadata"]["generation"]
        return next(
            (
                entry
                for entry in found.get("status", {}).get("conditions", [])
                if entry["type"] == kind and entry["observedGeneration"] == generation
            ),
            {},
        )

    def answers(self) -> bool:
        """Ready is true, by pods of the present spec or of one before."""
        conditions = self.object().get("status", {}).get("conditions", [])
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

    def wait(self, kind: str, status: str, reason: str = "", timeout_s: float = SERVES_S) -> dict[str, Any]:
        """Until the condition has the status (and the reason)."""
        bound = Bound(timeout_s)
        while True:
            seen = self.condition(kind)
            if seen.get("status") == status and (not reason or seen["reason"] == reason):
                bound.kept()
                return seen
            assert not bound.over, f"{kind} {status} {reason}: not in {bound}, but {self.object().get('status')}"
            time.sleep(LOOK_S)

    def settled(self, groups: int = 1, timeout_s: float = SERVES_S) -> None:
        """Until that many groups of the present spec serve, nothing else is left of the service's workers, and it is
        reached at its address."""
        self.wait("Ready", "True", "Serving", timeout_s)
        self.wait("Progressing", "False", "Complete", timeout_s)
        # Ready may be that of a moment ago: what was lost just now is not in the status yet.
        wait_until(lambda: self.object()["status"]["readyReplicas"] == groups, timeout_s, f"{groups} groups that serve")
        count = groups * self.pods_of_a_group
        wait_until(lambda: self._only_ready(count), timeout_s, f"{count} worker pods, all ready")
        wait_until(self._is_reached, timeout_s, "an answer at the address of the Service")

    def _only_ready(self, count: int) -> list[str]:
        pods = self.release.bed.objects("pods", self.release.namespace, self.selector("worker"))
        ready = [pod["metadata"]["uid"] for pod in pods if is_ready(pod)]
        return ready if len(pods) == len(ready) == count else []

    def _is_reached(self) -> bool:
        """By a connection of its own: one that began before kube-proxy knew the Service, or its routers, goes nowhere
        for as long as it is tried."""
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def pods_of_a_group(self) -> int:
        spec = self.object()["spec"]
        shape = spec.get("parallelism", {})
        tensor = shape.get("tensor", 1)
        return tensor * shape.get("pipeline", 1) // spec.get("accelerator", {}).get("perPod", tensor)

    def selector(self, component: str) -> str:
        return f"octavo.dev/service={self.name},octavo.dev/component={component}"

    def pods(self, component: str = "worker") -> dict[str, str]:
        """Uids by name."""
        return self._uids("pods", component)

    def groups(self) -> dict[str, str]:
        """Uids of the StatefulSets by name."""
        return self._uids("statefulsets", "worker")

    def _uids(self, kind: str, component: str) -> dict[str, str]:
        found = self.release.bed.objects(kind, self.release.namespace, self.selector(component))
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}

    def kill(self, process: str, pod: str | None = None) -> None:
        """kill -9 of a process of a worker pod: serve, core or rank."""
        pod = pod or next(iter(self.pods()))
        self.release.kubectl("exec", pod, "--", "sh", "-c", f"kill -9 $(pgrep -f octavo[.]worker[.]{process})")

    def router_metric(self, name: str) -> float:
        """A metric without labels, summed over the routers."""
        pods = self.release.bed.objects("pods", self.release.namespace, self.selector("router"))
        total = 0.0
        for pod in pods:
            with urllib.request.urlopen(
                f"http://{pod['status']['podIP']}:{ROUTER_METRICS}/metrics", timeout=5
            ) as answer:
                lines = answer.read().decode().splitlines()
            total += sum(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
        return total

    @property
    def address(self) -> str:
        """Of the Service, through whichever router Kubernetes picks."""
        found = self.release.bed.get("service", self.name, self.release.namespace)
        assert found is not None
        return f"http://{found['spec']['clusterIP']}"

    def client(self) -> openai.OpenAI:
        """The official one. It never tries again: what is lost, is lost."""
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="none", max_retries=0, timeout=90)

    def delete(self) -> None:
        """Returns when the object is gone."""
        self.release.kubectl("delete", "infsvc", self.name, "--ignore-not-found", f"--timeout={PATIENCE_S:.0f}s")


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return not pod["metadata"].get("deletionTimestamp") and any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions
    )


def readable(folder: Path) -> None:
    """By pods, which run as a user of their own; safetensors writes files for its own user only."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def installed(bed: Cluster) -> Iterator[Release]:
    """The chart, installed once for a lane. Its volume holds the model `letters`, which says the alphabet for ever."""
    _forget(bed)
    models = bed.state / f"models-{bed.lane.name}"
    one = {"num_attention_heads": 1, "num_key_value_heads": 1}  # 1 KiB of KV a token
    readable(successor_checkpoint(models / "letters", eos=None, context_length=LETTERS_CONTEXT, config=one))
    with release(bed, "octavo", models) as here:
        yield here


def _mark(bed: Cluster) -> dict[str, str]:
    return {"octavo.dev/made-by-tests": bed.lane.name}


def _forget(bed: Cluster) -> None:
    """Removes what an interrupted run has left in a cluster that goes on."""
    ((key, value),) = _mark(bed).items()
    mark = f"{key}={value}"
    bed.kubectl("delete", "namespace", "-l", mark, "--ignore-not-found", "--timeout=150s", timeout=160)
    bed.kubectl("delete", "persistentvolume", "-l", mark, "--ignore-not-found", "--wait=false")


@contextmanager
def release(bed: Cluster, name: str, models: Path, replicas: int = 2) -> Iterator[Release]:
    """Installs the chart with its default values (but for the images) in a new namespace that enforces `restricted`.
    replicas: of the operator."""
    with bed.namespace(name, **RESTRICTED, **_mark(bed)) as namespace:
        here = Release(bed, namespace, models)
        bed.apply(*_volume(namespace, models, _mark(bed)))
        try:
            # The CRD stays when a release goes, and is then the next one's; two lanes must not both make it.
            with locked(bed.state / "helm.lock"):
                values = ("--values", str(VALUES), "--set", f"replicas={replicas}")
                here.helm("install", "octavo", str(CHART), *values, "--take-ownership", "--wait")
            yield here
        finally:
            _remove(here)


def _remove(here: Release) -> None:
    """Services first: then their pods see a working cluster while they stop."""
    here.bed.kubectl("-n", here.namespace, "delete", "infsvc", "--all", "--wait=false", "--ignore-not-found")
    try:
        here.helm("uninstall", "octavo", "--ignore-not-found")
    except BedError:
        if here.bed.get("namespace", here.namespace, ""):  # a test may have deleted it
            raise
    here.bed.kubectl("delete", "persistentvolume", here.namespace, "--ignore-not-found", "--wait=false")


def _volume(namespace: str, folder: Path, labels: dict[str, str]) -> tuple[dict[str, Any], ...]:
    """A folder of every node as the claim `models`."""
    access, amount = ["ReadOnlyMany"], "1Gi"
    spec: dict[str, Any] = {"storageClassName": "", "accessModes": access}
    volume = {
        **spec,
        "capacity": {"storage": amount},
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": "models"},
    }
    claim = {**spec, "volumeName": namespace, "resources": {"requests": {"storage": amount}}}
    marked = {"name": namespace, "labels": labels}
    named = {"name": "models", "namespace": namespace}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": marked, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": claim},
    )
