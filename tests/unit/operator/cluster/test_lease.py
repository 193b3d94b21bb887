"""When a Lease may be taken, by the observer's own clock; and that the fence falls before that."""

import logging
from typing import Any, cast

import pytest

from octavo.operator.cluster.kube import Kube
from octavo.operator.cluster.lease import FENCE_S, LEASE_DURATION_S, WRITE_TIMEOUT_S, Lease, LeaseObservation


def _lease(holder: str, version: str) -> dict[str, Any]:
    # The holder's clock is an hour wrong; no candidate looks at it.
    spec = {"holderIdentity": holder, "renewTime": "2020-01-01T00:00:00.000000Z"}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


NEVER = LeaseObservation("", "", float("-inf"))


def test_the_last_write_of_a_holder_ends_before_the_lease_can_be_taken() -> None:
    assert FENCE_S + WRITE_TIMEOUT_S < LEASE_DURATION_S


def test_a_lease_that_is_renewed_is_never_free() -> None:
    sight = NEVER
    for beat in range(20):
        sight = sight.updated(_lease("a", str(beat)), beat * 2.5)
        assert not sight.free(beat * 2.5 + 2.4)


def test_a_lease_that_is_not_renewed_is_free_after_its_duration() -> None:
    sight = NEVER.updated(_lease("a", "1"), 100.0)
    assert not sight.updated(_lease("a", "1"), 100.0 + LEASE_DURATION_S).free(100.0 + LEASE_DURATION_S)
    assert sight.updated(_lease("a", "1"), 101.0 + LEASE_DURATION_S).free(101.0 + LEASE_DURATION_S)


def test_a_released_lease_is_free_at_once() -> None:
    assert NEVER.updated(_lease("", "2"), 5.0).free(5.0)


class _SlowOnce:
    """An API server whose first answer takes longer than LEASE_DURATION_S; the holder renewed just before it came."""

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.delay_s, self.taken = clock, LEASE_DURATION_S + 0.5, False

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        self.clock[0] += self.delay_s
        self.delay_s = 0.0
        return _lease("other", "2")

    async def call(self, *_: object, **__: object) -> dict[str, Any]:
        self.taken = True
        return {}


async def test_a_slow_answer_does_not_make_a_renewed_lease_look_old(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("octavo.operator.cluster.lease.time.monotonic", lambda: clock[0])
    server = _SlowOnce(clock)
    lease = Lease(cast(Kube, server), "ns", "me")
    await lease.step()
    clock[0] += 1
    await lease.step()
    assert not server.taken
    clock[0] += LEASE_DURATION_S
    await lease.step()
    assert server.taken


class _Server:
    """An API server that takes a while for each answer, with this Lease."""

    def __init__(
        self, clock: list[float], lease: dict[str, Any] | None, *, read_s: float = 0, write_s: float = 0
    ) -> None:
        self.clock, self.lease, self.read_s, self.write_s = clock, lease, read_s, write_s
        self.written: list[tuple[str, dict[str, Any]]] = []  # verb, spec

    async def get(self, *_: object, **__: object) -> dict[str, Any] | None:
        self.clock[0] += self.read_s
        return self.lease

    async def call(self, verb: str, *_: object, body: dict[str, Any], **__: object) -> dict[str, Any]:
        self.clock[0] += self.write_s
        self.written.append((verb, body["spec"]))
        self.lease = {"metadata": {"resourceVersion": str(len(self.written) + 100)}, "spec": body["spec"]}
        return self.lease


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("octavo.operator.cluster.lease.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("lease", [None, _lease("", "1")], ids=["new", "renewed"])
async def test_the_fence_counts_from_the_start_of_a_renewal_and_not_from_its_answer(
    clock: list[float], lease: dict[str, Any] | None
) -> None:
    """The server may have stored the renewal as soon as it was sent: from then on others count its duration."""
    one = Lease(cast(Kube, _Server(clock, lease, read_s=1, write_s=5)), "ns", "me")
    await one.step()
    assert clock[0] == 106 and one.held()
    clock[0] = 100 + FENCE_S - 0.01
    assert one.held()
    clock[0] = 100 + FENCE_S
    assert not one.held()


async def test_a_clean_stop_clears_the_lease_once(clock: list[float]) -> None:
    server = _Server(clock, _lease("", "1"))
    one = Lease(cast(Kube, server), "ns", "me")
    await one.step()
    assert [spec["holderIdentity"] for _, spec in server.written] == ["me"]
    for _ in range(2):
        await one.release()
    assert not one.held() and [spec["holderIdentity"] for _, spec in server.written] == ["me", ""]


async def test_a_clean_stop_leaves_a_lease_that_another_replica_has_taken(clock: list[float]) -> None:
    server = _Server(clock, _lease("", "1"))
    one = Lease(cast(Kube, server), "ns", "me")
    await one.step()
    server.lease = _lease("other", "200")
    await one.release()
    assert not one.held() and len(server.written) == 1


async def test_a_replica_on_standby_names_the_holder_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = _SlowOnce([0.0])
    lease = Lease(cast(Kube, server), "here", "me")
    for _ in range(3):
        await lease.step()
    expected = ["on standby: other holds the lease here/octavo-operator"]
    assert [each.getMessage() for each in caplog.records] == expected and not server.taken
