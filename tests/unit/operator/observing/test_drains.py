"""Nodes of services that want to know of drains are looked at, and a change reconciles the services with pods there."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster.services import pod

from octavo.operator.cluster.kube import Kube, KubeError, KubeUnreachable
from octavo.operator.observing import drains
from octavo.operator.observing.drains import REFUSED_S, Drains, drain_of

Json = dict[str, Any]  # Any: Kubernetes JSON


class Api:
    """Nodes that change, and what was asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.errors: dict[str, KubeError] = {}  # by node
        self.asked: list[str] = []

    async def get(self, kind: Any, namespace: str | None, name: str) -> Json | None:  # Any: a Kind
        self.asked.append(name)
        if name in self.errors:
            raise self.errors[name]
        return self.nodes.get(name)


class Watched:
    """Drains, and the services that it wants reconciled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(drains, "APART_S", 0.0)
        self.api, self.changed = Api(), list[str]()
        self.leads = True
        self.drains = Drains(cast(Kube, self.api), self.changed.append, lambda: self.leads)
        self.clock = SimpleNamespace(now=1000.0, monotonic=lambda: self.clock.now)
        monkeypatch.setattr(drains, "time", self.clock)

    def forbid(self, *nodes: str) -> None:
        self.api.errors = dict.fromkeys(nodes, KubeError(403, "Forbidden", "nodes is forbidden"))

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


@pytest.mark.parametrize("error", [KubeError(500, "InternalError", "etcd"), KubeUnreachable("timed out"),
                                   KubeError(403, "Forbidden", "not yet")])  # fmt: skip
async def test_a_look_that_fails_is_not_taken_for_a_node_that_stays(watched: Watched, error: KubeError) -> None:
    watched.api.nodes["n2"] = node(True)
    watched.api.errors["n2"] = error
    for _ in range(2):
        with pytest.raises(KubeError):
            await watched.of("chat", "n1", "n2")
    watched.api.errors.clear()
    assert await watched.of("chat", "n1", "n2") == {"n2": "is cordoned"}
    watched.api.errors["n2"] = error
    for _ in range(2):
        await watched.drains.look()
    assert watched.changed == [] and await watched.of("chat", "n1", "n2") == {"n2": "is cordoned"}


async def test_nodes_are_forbidden_once_looks_are_refused_for_a_while(watched: Watched) -> None:
    watched.forbid("n1", "n2")
    with pytest.raises(KubeError):
        await watched.of("chat", "n1", "n2")
    watched.clock.now += REFUSED_S
    assert await watched.of("chat", "n1", "n2") is None and watched.changed == ["default/chat"]
    asked = len(watched.api.asked)
    assert await watched.of("other", "n3") is None and len(watched.api.asked) == asked
    watched.forbid()
    watched.changed.clear()
    await watched.drains.look()
    assert set(watched.changed) == {"default/chat", "default/other"} and await watched.of("chat", "n1", "n2") == {}


async def test_a_refusal_that_is_followed_by_an_answer_makes_no_node_forbidden(watched: Watched) -> None:
    await watched.of("chat", "n1")
    for is_refused in (True, False, True):
        watched.forbid(*(["n1"] if is_refused else []))
        await watched.drains.look()
        watched.clock.now += REFUSED_S - 1
    assert watched.changed == [] and await watched.of("chat", "n1") == {}
    watched.clock.now += 1
    await watched.drains.look()
    assert watched.changed == ["default/chat"] and await watched.of("chat", "n1") is None


async def test_while_one_node_is_refused_nodes_stay_forbidden(watched: Watched) -> None:
    await watched.of("chat", "n1", "n2")
    watched.forbid("n2")
    for _ in range(3):
        await watched.drains.look()
        watched.clock.now += REFUSED_S
    assert watched.changed == ["default/chat"] and await watched.of("chat", "n1", "n2") is None


async def test_a_replica_that_does_not_lead_asks_for_no_node(watched: Watched) -> None:
    await watched.of("chat", "n1")
    watched.leads = False
    await watched.drains.look()
    watched.leads = True
    await watched.drains.look()
    assert watched.api.asked == ["n1"]
    watched.api.nodes["n1"] = node(True)
    assert await watched.of("chat", "n1") == {"n1": "is cordoned"}, "what was found before is not believed"
