"""What is asked of the API server beside the watches: nodes of unhealthy pods, and events of unschedulable ones."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster.services import condition, pod

from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import STATEFUL_SET, Kube, KubeError
from octavo.operator.groups.groups import timestamp
from octavo.operator.groups.snapshot import LostNode, Snapshot
from octavo.operator.observing import nodes
from octavo.operator.observing.drains import Drains
from octavo.operator.observing.observer import Observer

Json = dict[str, Any]  # Any: Kubernetes JSON
AT_S = 1_000_000.0


class Api:
    """Answers of the API server, and what was asked of it."""

    def __init__(self, node: Json | KubeError | None = None, events: list[Json] | None = None) -> None:
        self.node, self.found, self.asked = node, events or [], list[str]()

    async def get(self, kind: Any, namespace: str | None, name: str) -> Json | None:
        if kind is STATEFUL_SET:
            return None
        self.asked.append(f"{kind.kind} {name}")
        if isinstance(self.node, KubeError):
            raise self.node
        return self.node

    async def list(self, kind: Any, namespace: str, **query: str) -> tuple[list[Json], str]:
        self.asked.append(f"{kind.kind} {query['fieldSelector']}")
        return self.found, "1"


class Cached:
    """Pods of the one service, and no other object."""

    def __init__(self, *pods: Json) -> None:
        self.pods = list(pods)

    def of_service(self, kind: str, key: str) -> list[Json]:
        return self.pods if kind == "Pod" else []

    def unreadable(self, namespace: str) -> tuple[tuple[str, str], ...]:
        return ()


class NoCertificates:
    def operator_pair(self, uid: str) -> None:
        return None


async def seen(api: Api, *pods: Json, looks: int = 1) -> Snapshot:
    kube = cast(Kube, api)
    certificates = cast(CertificateKeeper, NoCertificates())
    observer = Observer(kube, cast(Caches, Cached(*pods)), certificates, Drains(kube, lambda key: None, lambda: True))
    for _ in range(looks):
        found = await observer.snapshot("default", "chat", "uid-chat", ())
    return found


def going() -> Json:
    found = pod("chat-0-0", phase="Running")
    found["metadata"]["deletionTimestamp"] = timestamp(AT_S)
    return found


def node(status: str) -> Json:
    return {"status": {"conditions": [condition("Ready", status, lastTransitionTime=timestamp(AT_S))]}}


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (None, {"node-1": LostNode("gone", 0.0)}),
        (node("Unknown"), {"node-1": LostNode("unreachable", AT_S)}),
        (node("False"), {"node-1": LostNode("not ready", AT_S)}),
        (node("True"), {}),
        ({"status": {}}, {}),
        (KubeError(403, "Forbidden", "no"), {}),
        (KubeError(500, "InternalError", "etcd"), {}),
    ],
)
async def test_the_node_of_a_pod_that_goes_is_lost_only_where_the_api_server_says_so(
    answer: Any, lost: dict[str, LostNode]
) -> None:
    assert (await seen(Api(answer), going())).lost_nodes == lost


async def test_without_permission_nodes_are_asked_for_once_and_of_healthy_pods_never() -> None:
    api = Api(KubeError(403, "Forbidden", "no"))
    await seen(api, going(), looks=3)
    assert api.asked == ["Node node-1"]
    healthy = Api()
    await seen(healthy, pod("chat-0-0", phase="Running", conditions=[condition("Ready", "True")]))
    assert healthy.asked == []


async def test_without_permission_no_node_stays_lost_and_permission_that_comes_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(nodes, "time", clock)
    api = Api(node("Unknown"))
    known = nodes.Nodes(cast(Kube, api))
    assert set(await known.lost((going(),))) == {"node-1"}
    api.node, clock.now = KubeError(403, "Forbidden", "no"), 1010.0
    assert await known.lost((going(),)) == {} and await known.lost((going(),)) == {}
    assert len(api.asked) == 2
    api.node, clock.now = node("Unknown"), 1010.0 + nodes.FORBIDDEN_RECHECK_S
    assert set(await known.lost((going(),))) == {"node-1"}


async def test_a_kind_that_may_not_be_read_is_reported_and_not_asked_for() -> None:
    class Unreadable(Cached):
        def unreadable(self, namespace: str) -> tuple[tuple[str, str], ...]:
            return (("StatefulSet", "forbidden"),)

    class Refusing(Api):
        async def get(self, kind: Any, namespace: str | None, name: str) -> Json | None:
            raise KubeError(403, "Forbidden", "no")

    caches, kube = Unreadable(pod("chat-0-0", phase="Running", conditions=[condition("Ready", "True")])), Refusing()
    certificates = cast(CertificateKeeper, NoCertificates())
    drains = Drains(cast(Kube, kube), lambda key: None, lambda: True)
    observer = Observer(cast(Kube, kube), cast(Caches, caches), certificates, drains)
    assert (await observer.snapshot("default", "chat", "uid-chat", ())).unreadable == (("StatefulSet", "forbidden"),)


WAITING = {"kind": "Pod"} | pod("chat-0-0", conditions=[condition("PodScheduled", "False", reason="Unschedulable")])


@pytest.mark.parametrize(
    ("event", "autoscaled"),
    [
        ({"source": {"component": "cluster-autoscaler"}, "reason": "TriggeredScaleUp"}, True),
        ({"source": {"component": "karpenter"}, "reason": "Nominated"}, True),
        ({"reportingComponent": "karpenter", "source": {}, "reason": "FailedScheduling"}, True),
        ({"source": {"component": "default-scheduler"}, "reason": "FailedScheduling"}, False),
        ({"reason": "FailedScheduling"}, False),
    ],
)
async def test_an_autoscaler_is_known_by_its_events_of_unschedulable_pods(event: Json, autoscaled: bool) -> None:
    api = Api(events=[{"metadata": {}, **event}])
    assert (await seen(api, WAITING, looks=3)).autoscaled is autoscaled
    assert set(api.asked) == {"Event involvedObject.uid=uid-chat-0-0"}
    assert len(api.asked) < 3, "at the first look, for its cause too, and not at each"


async def test_without_an_unschedulable_pod_nothing_is_asked() -> None:
    api = Api(events=[{"source": {"component": "karpenter"}}])
    placed = pod(
        "chat-0-0", phase="Running", conditions=[condition("PodScheduled", "True"), condition("Ready", "True")]
    )
    assert not (await seen(api, placed)).autoscaled and api.asked == []
