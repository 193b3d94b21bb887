"""What is asked of the pods themselves, and how often: routers once a minute while all is well, every ten seconds where
they need keys."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster.services import condition, pod, router_of, service

from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import EVENT, STATEFUL_SET, Kube
from octavo.operator.groups.snapshot import RouterKeys, RouterReport, Snapshot
from octavo.operator.observing import events, polls
from octavo.operator.observing.drains import Drains
from octavo.operator.observing.observer import Observer
from octavo.operator.planning.routers.keys import POLL_S

Json = dict[str, Any]  # Any: Kubernetes JSON
READY = [condition("PodScheduled", "True"), condition("Ready", "True")]


class Cluster:
    """Pods as cached, a clock, the pages of routers and the events that the API server lists."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.pods: list[Json] = []
        self.status: int | None = 200
        self.keys = False  # whether pages have the state of keys
        self.silent: set[str] = set()  # addresses
        self.skew = ""
        self.asked: list[str] = []  # addresses
        self.events: list[Json] = []
        self.lists = 0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        monkeypatch.setattr(events, "time", clock)
        monkeypatch.setattr(polls, "time", clock)
        monkeypatch.setattr(polls, "get_router_page", self._page)
        kube = cast(Kube, self)
        drains = Drains(kube, lambda key: None, lambda: True)
        self.observer = Observer(kube, cast(Caches, self), cast(CertificateKeeper, self), drains)

    async def _page(self, address: str) -> tuple[int, Json] | None:
        self.asked.append(address)
        silent = self.status is None or address in self.silent
        page: Json = {"groups": {"missing": [{"address": "a", "skew": self.skew}]}} if self.skew else {"groups": {}}
        return None if silent else (self.status or 0, {**page, "keys": {"valid": True}} if self.keys else page)

    def of_service(self, kind: str, _key: str) -> list[Json]:
        return self.pods if kind == "Pod" else []

    def unreadable(self, _namespace: str) -> tuple[tuple[str, str], ...]:
        return ()

    def operator_pair(self, _uid: str) -> None:
        return None

    async def list(self, kind: object, *_: object, **__: object) -> tuple[list[Json], str]:
        assert kind is EVENT
        self.lists += 1
        return self.events, "1"

    async def get(self, kind: object, *_: object) -> Json | None:
        if kind is STATEFUL_SET:
            return None
        return {"status": {"conditions": [condition("Ready", "True")]}}

    async def look(self, after_s: float = 0.0) -> Snapshot:
        self.now += after_s
        return await self.observer.snapshot("default", "chat", "uid-chat", ())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def leader(*, ready: bool = True) -> Json:
    found = pod("chat-0-0", phase="Running", conditions=READY if ready else READY[:1])
    found["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = "0"
    found["kind"] = "Pod"
    return found


def router() -> Json:
    found = router_of(service())
    found["status"]["podIP"] = "10.0.0.9"
    return found


async def test_a_router_that_reaches_a_group_is_asked_again_after_a_while(cluster: Cluster) -> None:
    cluster.pods = [leader(), router()]
    first = await cluster.look()
    assert first.routers == {"uid-chat-router-0": RouterReport()}
    assert await cluster.look(after_s=30) == first and len(cluster.asked) == 1
    await cluster.look(after_s=30)
    assert len(cluster.asked) == 2


async def test_a_router_that_reaches_no_group_is_asked_at_each_look_and_says_since_when(cluster: Cluster) -> None:
    cluster.pods, cluster.status = [leader(), router()], 503
    first = await cluster.look()
    assert first.routers == {"uid-chat-router-0": RouterReport(1_000.0)}
    assert await cluster.look(after_s=1) == first and len(cluster.asked) == 2
    cluster.status = 200
    assert (await cluster.look(after_s=1)).routers == {"uid-chat-router-0": RouterReport()}


async def test_a_router_that_does_not_answer_is_not_asked_all_the_time(cluster: Cluster) -> None:
    cluster.pods, cluster.status = [leader(), router()], None
    for _ in range(10):
        assert (await cluster.look(after_s=1)).routers == {}
    assert len(cluster.asked) == 1


async def test_without_a_ready_group_no_router_is_asked_and_none_is_known(cluster: Cluster) -> None:
    cluster.pods = [leader(ready=False), router()]
    assert (await cluster.look()).routers == {} and len(cluster.asked) == 0
    cluster.pods = [leader(), router()]
    assert (await cluster.look(after_s=1)).routers
    cluster.pods = [leader(ready=False), router()]
    assert (await cluster.look(after_s=1)).routers == {}
    cluster.pods, cluster.status = [leader(), router()], 503
    assert (await cluster.look(after_s=1)).routers == {"uid-chat-router-0": RouterReport(cluster.now)}, "asked at once"


async def test_a_router_that_is_not_ready_is_asked_now_and_then_whether_its_release_is_too_far_away(
    cluster: Cluster,
) -> None:
    waiting = router()
    waiting["status"]["conditions"] = [condition("Ready", "False")]
    cluster.pods, cluster.status, cluster.skew = [leader(), waiting], 503, "the group is of release 9"
    first = await cluster.look()
    assert first.routers == {"uid-chat-router-0": RouterReport(skew="the group is of release 9")}
    assert await cluster.look(after_s=5) == first and len(cluster.asked) == 1
    cluster.skew = ""
    assert (await cluster.look(after_s=5)).routers == {} and len(cluster.asked) == 2
    cluster.pods, cluster.status = [leader(), router()], 200
    assert (await cluster.look(after_s=1)).routers == {"uid-chat-router-0": RouterReport()}, "ready ones at once"
    cluster.pods = [leader(ready=False), waiting]
    assert (await cluster.look(after_s=60)).routers == {} and len(cluster.asked) == 3, "no group, nothing to ask"


KEYS: Json = {"name": "keys", "secret": {"secretName": "clients", "items": [{"key": "keys", "path": "keys"}]}}
GOOD = RouterReport(keys=RouterKeys(True))


def router_with_keys(number: int, *, ready: bool = True) -> Json:
    found = router_of(service(), number, ready=ready)
    found["status"]["podIP"] = f"10.0.0.{number}"
    found["spec"]["volumes"] = [KEYS]
    return found


async def test_ready_routers_with_keys_are_asked_every_ten_seconds_also_without_a_group(cluster: Cluster) -> None:
    leaving = router_with_keys(3)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    one, two = router_with_keys(1), router_with_keys(2)
    cluster.pods = [leader(ready=False), one, two, router(), leaving, router_with_keys(4, ready=False)]
    cluster.keys, cluster.status, cluster.silent = True, 503, {"10.0.0.2"}

    async def asked(after_s: float) -> tuple[set[str], dict[str, RouterReport]]:
        cluster.asked.clear()
        found = await cluster.look(after_s)
        return set(cluster.asked), dict(found.routers)

    assert await asked(0) == ({"10.0.0.1", "10.0.0.2"}, {"uid-chat-router-1": GOOD}), "without a group none is cut off"
    assert (await asked(0.5))[0] == set()
    assert (await asked(4))[0] == {"10.0.0.2"}, "it did not answer"
    cluster.silent = set()
    found = {"uid-chat-router-1": GOOD, "uid-chat-router-2": GOOD}
    assert await asked(POLL_S - 4.5) == ({"10.0.0.1", "10.0.0.2"}, found)
    cluster.pods = [leader(ready=False), two]
    assert await asked(0.1) == (set(), {"uid-chat-router-2": GOOD}), "the answer of a pod that is gone goes too"


async def test_a_router_with_keys_is_asked_at_once_when_a_group_is_ready_and_its_keys_stay_known(
    cluster: Cluster,
) -> None:
    cluster.pods, cluster.keys, cluster.status = [leader(ready=False), router_with_keys(1)], True, 503
    assert (await cluster.look()).routers == {"uid-chat-router-1": GOOD}
    cluster.pods = [leader(), router_with_keys(1)]
    found = (await cluster.look(after_s=1)).routers
    assert found == {"uid-chat-router-1": RouterReport(cluster.now, keys=RouterKeys(True))}
    cluster.status = 200
    assert (await cluster.look(after_s=1)).routers == {"uid-chat-router-1": GOOD}
    cluster.asked.clear()
    await cluster.look(after_s=1)
    assert not cluster.asked
    await cluster.look(after_s=POLL_S)
    assert len(cluster.asked) == 1


def event(reason: str, kind: str, message: str) -> Json:
    return {"metadata": {}, "reason": reason, "type": kind, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"}


async def test_events_are_read_of_a_pod_without_a_node_and_counting_ones_are_kept(cluster: Cluster) -> None:
    found = condition("PodScheduled", "False", reason="Unschedulable")
    cluster.pods = [{"kind": "Pod", **pod("chat-0-0", phase="Pending", conditions=[found])}]
    cluster.events = [
        event("TriggeredScaleUp", "Normal", "pod triggered scale-up"),
        event("NotTriggerScaleUp", "Normal", "pod did not"),
        event("FailedScheduling", "Warning", "0/2 nodes"),
        event("Failed", "Warning", 'Failed to pull image "a": 401'),
        event("Failed", "Warning", "Error: ImagePullBackOff"),
    ]
    snapshot = await cluster.look()
    assert [(one.reason, one.message) for one in snapshot.warnings] == [
        ("TriggeredScaleUp", "pod triggered scale-up"),
        ("FailedScheduling", "0/2 nodes"),
        ("Failed", 'Failed to pull image "a": 401'),
    ]
    await cluster.look(after_s=1)
    assert cluster.lists == 1
    cluster.pods = [leader()]
    assert (await cluster.look(after_s=9)).warnings == () and cluster.lists == 1, "nothing is read while all is well"
