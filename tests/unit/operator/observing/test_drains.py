"""Nodes of services that want to know of drains are looked at, and a change reconciles the services with pods there."""

from typing import Any, cast

import pytest
from support.cluster.services import pod

from octavo.operator.cluster.kube import Kube, KubeError
from octavo.operator.observing import drains
from octavo.operator.observing.drains import Drains, drain_of

Json = dict[str, Any]  # Any: Kubernetes JSON


class Api:
    """Nodes that change, and what was asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.is_forbidden = False
        self.asked: list[str] = []

    async def get(self, kind: Any, namespace: str | None, name: str) -> Json | None:  # Any: a Kind
        self.asked.append(name)
        if self.is_forbidden:
            raise KubeError(403, "Forbidden", "nodes is forbidden")
        return self.nodes.get(name)


class Watched:
    """Drains, and the services that it wants reconciled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(drains, "APART_S", 0.0)
        self.api, self.changed = Api(), list[str]()
        self.drains = Drains(cast(Kube, self.api), self.changed.append)

    async def of(self, name: str, *nodes: str) -> Json | None:
        pods = [pod(f"{name}-{index}-0") for index in range(len(nodes))]
        for one, node in zip(pods, nodes, strict=True):
            one["spec"]["nodeName"] = node
        found = await self.drains.of(f"uid-{name}", f"default/{name}", pods)
        return None if found is None else dict(found)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def node(unschedulable: bool = False, *taints: str, deleted: bool = False) -> Json:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    return {"metadata": metadata, "spec": {"unschedulable": unschedulable, "taints": [{"key": key} for key in taints]}}


@pytest.mark.parametrize(
    ("found", "how"),
    [
        (None, ""),
        (node(), ""),
        (node(False, "nvidia.com/gpu"), ""),
        (node(True, "node.kubernetes.io/unschedulable"), "is cordoned"),
        (node(False, "ToBeDeletedByClusterAutoscaler"), "has the taint ToBeDeletedByClusterAutoscaler"),
        (node(False, "karpenter.sh/disrupted"), "has the taint karpenter.sh/disrupted"),
        (node(deleted=True), "is being deleted"),
    ],
)
def test_a_drain_is_known_by_a_cordon_a_deletion_or_an_autoscalers_taint(found: Json | None, how: str) -> None:
    assert drain_of(found) == how


async def test_a_cordon_reconciles_the_services_with_pods_there_and_no_other(watched: Watched) -> None:
    assert await watched.of("chat", "n1", "n2") == {} == await watched.of("other", "n3")
    await watched.drains.look()
    assert watched.changed == []
    watched.api.nodes["n2"] = node(True)
    await watched.drains.look()
    assert watched.changed == ["default/chat"] and await watched.of("chat", "n1", "n2") == {"n2": "is cordoned"}
    watched.api.nodes["n2"] = node()
    await watched.drains.look()
    assert watched.changed == ["default/chat"] * 2 and await watched.of("chat", "n1", "n2") == {}


async def test_a_node_is_looked_at_once_for_all_its_services_and_not_after_the_last_of_them(watched: Watched) -> None:
    await watched.of("chat", "n1")
    await watched.of("other", "n1")
    await watched.drains.look()
    assert watched.api.asked == ["n1", "n1"]
    for name in ("chat", "other"):
        watched.drains.forget(f"uid-{name}")
    await watched.drains.look()
    assert watched.api.asked == ["n1", "n1"]


async def test_nodes_that_may_not_be_read_are_not_taken_for_nodes_that_stay(watched: Watched) -> None:
    watched.api.is_forbidden = True
    assert await watched.of("chat", "n1", "n2") is None
    assert watched.api.asked == ["n1"]
    watched.api.is_forbidden = False
    await watched.drains.look()
    assert "default/chat" in watched.changed and await watched.of("chat", "n1", "n2") == {}
    watched.changed.clear()
    watched.api.is_forbidden = True
    await watched.drains.look()
    assert watched.changed == ["default/chat"] and await watched.of("chat", "n1", "n2") is None
