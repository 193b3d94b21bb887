"""Of two operators whose namespaces overlap at most one may write, whatever fails and however late an answer is."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.operator.cluster import lease as lease_module
from octavo.operator.cluster import namespace_leases as leases_module
from octavo.operator.cluster.kube import Kube, KubeError, KubeUnreachable
from octavo.operator.cluster.lease import WRITE_TIMEOUT_S, Lease
from octavo.operator.cluster.namespace_leases import POLL_S, RENEW_S, RENEWALS, NamespaceLeases
from octavo.operator.metrics import Metrics


class Server:
    """An API server of Leases: resource versions, conflicts, and failures as they are set."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.now, self.versions = 1000.0, itertools.count(1)
        self.status, self.writes, self.late_s = 0, 0, 0.0

    async def get(self, _kind: object, namespace: str, _name: str, **_: object) -> dict[str, Any] | None:
        self._fail()
        found = self.leases.get(namespace)
        return None if found is None else {**found, "spec": dict(found["spec"])}

    async def call(self, method: str, path: str, body: dict[str, Any], **_: object) -> dict[str, Any]:
        self._fail()
        namespace = path.split("/")[5]
        live = self.leases.get(namespace)
        if method == "PUT":
            if live is None or live["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise KubeError(409, "Conflict", "the object has been modified")
        elif live is not None:
            raise KubeError(409, "AlreadyExists", "leases exist")
        self.writes += 1
        meta = {**body["metadata"], "resourceVersion": str(next(self.versions))}
        self.leases[namespace] = {**body, "metadata": meta}
        self.now += self.late_s
        return self.leases[namespace]

    def _fail(self) -> None:
        if self.status == 403:
            raise KubeError(403, "Forbidden", "cannot get resource leases")
        if self.status in (404, 409):
            raise KubeError(self.status, "Refused", "not now")
        if self.status:
            raise KubeUnreachable("no answer")


class Operator:
    """The Leases of an installation of namespace `home`. blocked: what it was reported of."""

    def __init__(self, server: Server, home: str) -> None:
        self.own = Lease(cast(Kube, server), home, f"pod-{home}")
        self.blocked, self.gained = list[tuple[str, str]](), list[str]()
        self.meter = Metrics()
        self.leases = NamespaceLeases(cast(Kube, server), self.own, self.meter, self._blocked, self.gained.append)

    async def _blocked(self, namespace: str, why: str) -> None:
        self.blocked.append((namespace, why))


@contextmanager
def clock(server: Server) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (lease_module, leases_module):
            patch.setattr(module.time, "monotonic", lambda: server.now)
        yield


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with clock(made):
        yield made


async def test_the_first_operator_holds_and_the_other_is_informed_once(server: Server) -> None:
    one, two = Operator(server, "a"), Operator(server, "b")
    for each in (one, two):
        await each.own.step()
    assert await one.leases.take("x") and not await two.leases.take("x")
    server.now += 3.0
    assert not await two.leases.take("x")
    assert two.blocked == [("x", "a/octavo-operator holds the lease octavo-operator")] and one.blocked == []
    assert one.leases.held("x") and not two.leases.held("x")


async def test_a_held_lease_costs_nothing_until_it_is_renewed(server: Server) -> None:
    one = Operator(server, "a")
    await one.own.step()
    await one.leases.take("x")
    writes = server.writes
    for _ in range(100):
        assert await one.leases.take("x")
    assert server.writes == writes


async def test_a_change_of_the_leader_hands_nothing_over(server: Server) -> None:
    first, second, other = Operator(server, "a"), Operator(server, "a"), Operator(server, "b")
    second.own.identity = "pod-a-2"
    for each in (first, other):
        await each.own.step()
    assert await first.leases.take("x") and not await other.leases.take("x")
    await first.own.release()
    server.now += POLL_S
    assert not first.leases.held("x") and not await other.leases.take("x"), "it is the installation's"
    await second.own.step()
    assert await second.leases.take("x")


async def test_the_lease_of_an_installation_that_has_stopped_expires(server: Server) -> None:
    one, two = Operator(server, "a"), Operator(server, "b")
    for each in (one, two):
        await each.own.step()
    await one.leases.take("x")
    await two.leases.take("x")
    await one.own.release()
    server.now += DURATION_S + 1.0
    await two.own.step()
    assert await two.leases.take("x") and two.gained == ["x"]


async def test_the_lease_of_a_namespace_without_services_is_released(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Operator(server, "a"), Operator(server, "b")
    for each in (one, two):
        await each.own.step()
    await one.leases.take("x")
    await two.leases.take("x")
    passed = iter((None,))

    async def second(_: float) -> None:
        next(passed)

    monkeypatch.setattr(leases_module.asyncio, "sleep", second)
    with pytest.raises(RuntimeError):
        await one.leases.run(list)
    server.now += POLL_S
    assert await two.leases.take("x")


async def test_the_lease_of_the_own_namespace_is_that_of_the_election(server: Server) -> None:
    narrow, broad = Operator(server, "x"), Operator(server, "b")
    for each in (narrow, broad):
        await each.own.step()
    assert await narrow.leases.take("x") and not await broad.leases.take("x")
    assert broad.blocked == [("x", "pod-x holds the lease octavo-operator")]


async def test_an_operator_of_the_namespace_stands_by_as_long_as_the_other_has_set(server: Server) -> None:
    broad, reported = Operator(server, "b"), list[tuple[str, str]]()
    await broad.own.step()
    await broad.leases.take("x")

    async def tell(namespace: str, why: str) -> None:
        reported.append((namespace, why))

    narrow = Lease(cast(Kube, server), "x", "pod-x", tell)
    began = server.now
    while not narrow.held():
        await narrow.step()
        server.now += 1.0
        assert server.now < began + 200
    assert server.now - began > RENEW_S * RENEWALS
    assert reported == [("x", "b/octavo-operator holds the lease octavo-operator")]


async def test_without_permission_on_leases_nothing_is_written_and_it_is_reported(server: Server) -> None:
    one = Operator(server, "a")
    await one.own.step()
    server.status = 403
    assert not await one.leases.take("x")
    (namespace, why), *more = one.blocked
    assert namespace == "x" and "cannot take the lease octavo-operator: cannot get resource leases" in why and not more
    server.status, server.now = 0, server.now + 3.0
    assert await one.leases.take("x") and one.gained == ["x"]


@pytest.mark.parametrize("status", [500, 404, 409])
async def test_services_are_added_again_once_a_lease_that_could_not_be_taken_is_held(
    server: Server, status: int
) -> None:
    one = Operator(server, "a")
    await one.own.step()
    server.status = status
    assert not await one.leases.take("x") and one.blocked == [] and one.gained == []
    server.status, server.now = 0, server.now + 3.0
    assert await one.leases.take("x") and one.gained == ["x"]
    server.now += RENEW_S
    await one.own.step()
    assert await one.leases.take("x") and one.gained == ["x"], "a renewal is no news"


async def test_a_replica_without_the_own_lease_holds_nothing(server: Server) -> None:
    one = Operator(server, "a")
    await one.own.step()
    await one.leases.take("x")
    server.now += 9.0
    assert not one.leases.held("x"), "another replica may lead by now"


async def test_the_duration_grows_with_the_namespaces_so_that_renewals_are_bounded(server: Server) -> None:
    one = Operator(server, "a")
    await one.own.step()
    for number in range(600):
        await one.leases.take(f"n{number}")
    spec = server.leases["n599"]["spec"]
    assert spec["leaseDurationSeconds"] >= 60 * RENEWALS
    server.now += 1.0
    assert one.leases.held("n0") and one.leases.held("n599")


DURATION_S = int(RENEW_S * RENEWALS + 2 * WRITE_TIMEOUT_S) + 1
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["take", "take", "take", "own", "own", "wait", "wait", "unreachable", "reachable", "late", "stop"]
        ),
        st.booleans(),
        st.sampled_from([0, 1, 5, DURATION_S - 8, DURATION_S - 3, DURATION_S, DURATION_S + 1, DURATION_S + 5]),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=400)
@given(steps)
def test_never_may_both_write(actions: list[tuple[str, bool, int]]) -> None:
    server = Server()
    with clock(server):
        asyncio.run(_both(server, actions))


async def _both(server: Server, actions: list[tuple[str, bool, int]]) -> None:
    both = (Operator(server, "a"), Operator(server, "b"))
    writing = [float("-inf"), float("-inf")]  # until when a write of each may run
    for action, second, value in actions:
        one = both[second]
        if action == "take":
            await one.own.step()
            await one.leases.take("x")
        elif action == "wait":
            server.now += value
        elif action == "own":
            await one.own.step()
        elif action == "stop":
            if server.now > writing[second]:
                await one.own.release()
        else:
            server.status = {"unreachable": 500}.get(action, 0)
            server.late_s = min(value / 16, WRITE_TIMEOUT_S) if action == "late" else 0.0
        for number, each in enumerate(both):
            if each.leases.held("x"):
                assert server.now > writing[1 - number], "a write of the other may still run"
                writing[number] = server.now + WRITE_TIMEOUT_S
