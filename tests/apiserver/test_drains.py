"""spec.disruption.onDrain on a real API server: what may be evicted, and when."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.bed import Bed, BedError, wait_until
from support.cluster.operators import condition, operator, service
from support.patience import PATIENCE_S

Json = dict[str, Any]  # Any: Kubernetes JSON


class Pods:
    """Pods of the service `chat`, bound and made ready by the test: there are no nodes here."""

    def __init__(self, bed: Bed, space: str) -> None:
        self.bed, self.space = bed, space
        self.node = f"drained-{space}"

    def _post(self, pod: str, subresource: str, body: Json) -> None:
        path = f"/api/v1/namespaces/{self.space}/pods/{pod}/{subresource}"
        body = {"metadata": {"name": pod, "namespace": self.space}, **body}
        self.bed.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    def serve(self, pod: str, node: str | None = None) -> None:
        """Once it is there: it is bound to the node, and ready."""
        wait_until(lambda: self.bed.get("pod", pod, self.space), PATIENCE_S, pod)
        if node:
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            self._post(pod, "binding", {"apiVersion": "v1", "kind": "Binding", "target": target})
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
        status = json.dumps({"status": {"phase": "Running", "conditions": conditions}})
        self.bed.kubectl("patch", "pod", pod, "-n", self.space, "--subresource=status", "--type=merge", "-p", status)

    def evict(self, pod: str) -> bool:
        """As `kubectl drain` does. False: the budget refuses it."""
        try:
            self._post(pod, "eviction", {"apiVersion": "policy/v1", "kind": "Eviction"})
        except BedError as error:
            assert "disruption budget" in str(error), error
            return False
        return True

    def groups(self) -> list[str]:
        found = self.bed.objects("statefulsets", self.space, "octavo.dev/service=chat")
        return sorted(item["metadata"]["name"] for item in found if "deletionTimestamp" not in item["metadata"])

    def allowed(self) -> int | None:
        """Evictions that the budget allows now; None: the disruption controller has not seen its present spec."""
        budget = self.bed.get("poddisruptionbudget", "chat-workers", self.space) or {}
        status = budget.get("status") or {}
        is_seen = status.get("observedGeneration") == budget.get("metadata", {}).get("generation")
        return int(status["disruptionsAllowed"]) if is_seen and status.get("currentHealthy") else None


@pytest.fixture
def pods(bed: Bed, space: str) -> Iterator[Pods]:
    found = Pods(bed, space)
    bed.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": found.node}})
    yield found
    bed.client.delete("node", found.node)


def draining(**spec: Any) -> Json:  # Any: fields of the spec
    """A service whose pods stay on a node without a kubelet."""
    stays = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}
    return service(accelerator=stays, disruption={"onDrain": "surge"}, **spec)


def test_a_group_on_a_cordoned_node_is_evicted_only_after_another_one_serves(
    bed: Bed, space: str, pods: Pods, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(draining(), namespace=space)
        pods.serve("chat-0-0", pods.node)
        wait_until(lambda: pods.allowed() == 0, PATIENCE_S, "no eviction is allowed")
        bed.kubectl("cordon", pods.node)
        assert not pods.evict("chat-0-0")
        wait_until(lambda: pods.groups() == ["chat-0", "chat-1"], PATIENCE_S, "another group is created")
        wait_until(lambda: condition(bed, space, "Progressing").get("reason") == "Draining", PATIENCE_S, "status")
        assert not pods.evict("chat-0-0") and pods.groups() == ["chat-0", "chat-1"]
        pods.serve("chat-1-0")
        wait_until(lambda: pods.groups() == ["chat-1"], PATIENCE_S, "the group goes from the cordoned node")
        gone = lambda: (bed.get("pod", "chat-0-0", space) or {"metadata": {"deletionTimestamp": ""}})["metadata"]  # noqa: E731
        wait_until(lambda: "deletionTimestamp" in gone(), PATIENCE_S, "its pod drains")
        if bed.get("pod", "chat-0-0", space):
            assert pods.evict("chat-0-0"), "the drain of the node goes on"
        assert not pods.evict("chat-1-0")


def test_a_group_that_is_not_replaced_in_time_can_be_evicted(bed: Bed, space: str, pods: Pods, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(draining(rollout={"progressDeadline": "10s"}), namespace=space)
        pods.serve("chat-0-0", pods.node)
        wait_until(lambda: pods.allowed() == 0, PATIENCE_S, "no eviction is allowed")
        bed.kubectl("cordon", pods.node)
        wait_until(lambda: pods.groups() == ["chat-0", "chat-1"], PATIENCE_S, "another group is created")
        wait_until(lambda: pods.evict("chat-0-0"), PATIENCE_S, "the eviction passes, though chat-1 does not serve")
