"""The chart as helm renders it, and its permissions on an API server."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.cluster.bed import Bed

CHART = Path(__file__).parents[3] / "charts/octavo"
ACCESS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
CLUSTER_WIDE = tuple(kind for kind in ACCESS if kind.startswith(("Cluster", "Validating")))

Json = dict[str, Any]  # Any: Kubernetes JSON


def helm(bed: Bed, *args: str) -> subprocess.CompletedProcess[str]:
    command = [str(bed.binaries / "helm"), *args]
    return subprocess.run(command, env=bed.environment, capture_output=True, text=True, timeout=60, check=False)


def render(bed: Bed, namespace: str, *flags: str) -> list[Json]:
    done = helm(bed, "template", "octavo", str(CHART), "-n", namespace, *flags)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


@contextmanager
def access(bed: Bed, namespace: str, *flags: str) -> Iterator[str]:
    """The operator's account with what the chart grants and forbids; no operator. Yields the account's user name."""
    objects = [item for item in render(bed, namespace, *flags) if item["kind"] in ACCESS]
    try:
        for item in objects:
            bed.apply(item)
        yield f"system:serviceaccount:{namespace}:octavo-operator"
    finally:
        for item in objects:
            if item["kind"] in CLUSTER_WIDE:
                bed.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")


def granted(objects: list[Json]) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) of all rules of the roles."""
    return {
        (group, resource, verb)
        for item in objects
        if item["kind"] in ("Role", "ClusterRole")
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
