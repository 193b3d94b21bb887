"""The bed itself: what the other tests on a cluster take for granted."""

from typing import Any

import pytest
from support.cluster.api_client import ApiError
from support.cluster.bed import Cluster, wait_until

SLEEP = ["python", "-c", "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"]


def pod(name: str, node: str, command: list[str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "localhost/octavo-operator:test",
        "imagePullPolicy": "Never",
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def test_both_nodes_are_ready(cluster: Cluster) -> None:
    for node in ("node1", "node2"):
        cluster.ready(node, timeout_s=30)


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_a_pod_reaches_the_api_server_by_name(cluster: Cluster, node: str) -> None:
    get = [
        "curl",
        "-sSk",
        "--max-time",
        "5",
        "--retry",
        "3",
        "--retry-all-errors",
        "https://kubernetes.default.svc/version",
    ]
    with cluster.namespace("bed") as namespace:
        cluster.apply(pod("asks", node, get), namespace=namespace)
        cluster.kubectl(
            "-n", namespace, "wait", "pod/asks", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s"
        )
        assert "gitVersion" in cluster.kubectl("-n", namespace, "logs", "asks")


def test_pods_of_two_nodes_reach_each_other_by_service_name(cluster: Cluster) -> None:
    with cluster.namespace("bed") as namespace:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
        }
        serve = ["python", "-m", "http.server", "-d", "/opt", "8000"]
        ask = [
            "curl",
            "-sSf",
            "--max-time",
            "2",
            "--retry",
            "30",
            "--retry-delay",
            "1",
            "--retry-all-errors",
            "http://web/",
        ]
        cluster.apply(service, pod("web", "node1", serve), pod("asks", "node2", ask), namespace=namespace)
        cluster.kubectl(
            "-n", namespace, "wait", "pod/asks", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=50s"
        )
        assert "octavo/" in cluster.kubectl("-n", namespace, "logs", "asks")


def test_a_pod_that_breaks_the_restricted_standard_is_refused_where_it_is_enforced(cluster: Cluster) -> None:
    root = pod("root", "node1", SLEEP)
    root["spec"]["securityContext"] = {"runAsUser": 0}
    with cluster.namespace("bed", **{"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        cluster.apply(pod("user", "node1", SLEEP), namespace=namespace)
        with pytest.raises(ApiError, match="violates PodSecurity"):
            cluster.apply(root, namespace=namespace)


def test_a_node_that_is_cut_off_turns_not_ready_names_are_answered_meanwhile_and_it_comes_back(
    cluster: Cluster,
) -> None:
    resolve = ["python", "-c", "import socket; [socket.gethostbyname('kubernetes.default.svc') for _ in range(20)]"]
    with cluster.namespace("bed") as namespace:
        ready = ("-n", namespace, "wait", "pod/stays", "--for=condition=Ready", "--timeout=30s")
        cluster.apply(pod("stays", "node2", SLEEP), namespace=namespace)
        cluster.kubectl(*ready)
        cluster.net("node2", "down")
        try:
            cluster.ready("node2", False, timeout_s=60)
            cluster.apply(pod("asks", "node1", resolve), namespace=namespace)
            asked = wait_until(lambda: _phase(cluster, "asks", namespace), 60, "the pod to end")
            assert asked == "Succeeded", cluster.kubectl("-n", namespace, "logs", "asks")
        finally:
            cluster.net("node2", "up")
        cluster.ready("node2", timeout_s=60)
        cluster.kubectl(*ready)
        restarts = cluster.get("pod", "stays", namespace)["status"]["containerStatuses"][0]["restartCount"]  # type: ignore[index]
        assert restarts == 0


def test_a_crashed_node_can_be_replaced(cluster: Cluster) -> None:
    cluster.crash("node2")
    cluster.ready("node2", False, timeout_s=60)
    cluster.replace("node2")
    with cluster.namespace("bed") as namespace:
        cluster.apply(pod("new", "node2", ["true"]), namespace=namespace)
        cluster.kubectl("-n", namespace, "wait", "pod/new", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s")


def _phase(cluster: Cluster, name: str, namespace: str) -> str | None:
    """How the pod ended, or None while it has not."""
    found = cluster.get("pod", name, namespace)
    phase = found["status"].get("phase") if found else None
    return phase if phase in ("Succeeded", "Failed") else None
