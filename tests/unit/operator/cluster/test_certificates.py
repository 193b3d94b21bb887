"""A service's Secrets: looked at within a minute, put back when they are gone, the authority unchanged."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from octavo.operator.cluster.certificates import REVALIDATE_S, CertificateKeeper, read_authority
from octavo.operator.cluster.kube import Kind, Kube, Object
from octavo.operator.groups import names
from octavo.operator.planning.actions import Certificates, Leaf

UID = "0b9f6a52-0b6f-4f0c-9d3c-7b6f7e1a2c3d"
DESIRED = Certificates(
    UID,
    "chat-ca",
    (Leaf("chat-worker-tls", names.dns_name("worker", UID)), Leaf("chat-router-tls", names.dns_name("router", UID))),
    {"labels": {}, "ownerReferences": [{"uid": UID}]},
)


class Secrets:
    """The Secrets of one namespace."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.versions = 0
        self.writes: list[str] = []
        self.reads: list[str] = []  # of whole Secrets
        self.held: list[str] = []

    async def get(self, _kind: Kind, _namespace: str, name: str) -> Object | None:
        self.reads.append(name)
        return self.stored.get(name)

    async def version(self, _kind: Kind, _namespace: str, name: str) -> str | None:
        return self.stored[name]["metadata"]["resourceVersion"] if name in self.stored else None

    async def apply(self, desired: Mapping[str, Any], _owner: str) -> bool:
        self.writes.append(desired["metadata"]["name"])
        self.change(desired["metadata"]["name"], desired)
        return True

    def hold(self, secret: Mapping[str, Any], _owner: str) -> None:
        self.held.append(secret["metadata"]["name"])

    def change(self, name: str, to: Mapping[str, Any]) -> None:
        self.versions += 1
        self.stored[name] = {**to, "metadata": {**to["metadata"], "resourceVersion": str(self.versions)}}


def _keeper(secrets: Secrets) -> CertificateKeeper:
    return CertificateKeeper(cast(Kube, secrets), secrets.apply, secrets.hold)


async def test_the_secrets_of_a_ready_service_are_looked_at_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("octavo.operator.cluster.certificates.time.monotonic", lambda: now)
    keeper = _keeper(Secrets())
    assert keeper.due(UID, ready=True)
    await keeper.ensure("ns", DESIRED)
    assert not keeper.due(UID, ready=True) and 0 < keeper.check_in(UID) < 60
    now += keeper.check_in(UID)
    assert keeper.due(UID, ready=True)


@pytest.mark.parametrize("name", ["chat-ca", "chat-worker-tls", "chat-router-tls"])
async def test_a_deleted_secret_comes_back_with_the_same_authority(name: str) -> None:
    secrets = Secrets()
    keeper = _keeper(secrets)
    await keeper.ensure("ns", DESIRED)
    authority, leaves = secrets.stored["chat-ca"]["data"], len(secrets.writes)
    del secrets.stored[name]
    await keeper.ensure("ns", DESIRED)
    assert secrets.stored["chat-ca"]["data"] == authority
    assert secrets.writes[leaves:] == [name]


async def test_a_secret_that_is_good_again_is_reported_as_held() -> None:
    """The last write of it may have been put off: without a report it would be pending."""
    secrets = Secrets()
    keeper = _keeper(secrets)
    await keeper.ensure("ns", DESIRED)
    assert secrets.held == []
    await keeper.ensure("ns", DESIRED)
    assert secrets.held == ["chat-ca", "chat-worker-tls", "chat-router-tls"]


async def test_unchanged_secrets_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("octavo.operator.cluster.certificates.time.monotonic", lambda: now)
    secrets = Secrets()
    keeper = _keeper(secrets)
    await keeper.ensure("ns", DESIRED)  # writes them
    await keeper.ensure("ns", DESIRED)  # finds them good
    secrets.reads.clear()
    for _ in range(3):
        now += keeper.check_in(UID)
        await keeper.ensure("ns", DESIRED)
        assert secrets.reads == [] and not keeper.due(UID, ready=True)
    now += REVALIDATE_S[1]
    await keeper.ensure("ns", DESIRED)
    assert len(secrets.reads) == 3, "even good certificates end"


async def test_a_changed_secret_is_put_right() -> None:
    secrets = Secrets()
    keeper = _keeper(secrets)
    for _ in range(2):
        await keeper.ensure("ns", DESIRED)
    damaged = secrets.stored["chat-worker-tls"]
    secrets.change("chat-worker-tls", {**damaged, "data": {**damaged["data"], "tls.crt": ""}})
    await keeper.ensure("ns", DESIRED)
    assert secrets.writes[3:] == ["chat-worker-tls"] and secrets.stored["chat-worker-tls"]["data"]["tls.crt"]


async def test_the_operators_own_certificate_is_of_the_authority_that_signs_now() -> None:
    secrets, others = Secrets(), Secrets()
    keeper = _keeper(secrets)
    await keeper.ensure("ns", DESIRED)
    first = keeper.operator_pair(UID)
    await _keeper(others).ensure("ns", DESIRED)
    secrets.change("chat-ca", others.stored["chat-ca"])
    await keeper.ensure("ns", DESIRED)
    second, authority = keeper.operator_pair(UID), read_authority(secrets.stored["chat-ca"])
    assert first is not None and second is not None and authority is not None
    second[0].parsed.verify_directly_issued_by(authority.current.parsed)
    assert second[1] == authority.bundle and keeper.operator_pair(UID) == second, "signed once"


async def test_a_new_operator_takes_over_the_authority_that_is_there() -> None:
    secrets = Secrets()
    await _keeper(secrets).ensure("ns", DESIRED)
    before = list(secrets.writes)
    again = _keeper(secrets)
    await again.ensure("ns", DESIRED)
    assert secrets.writes == before
    pair = again.operator_pair(UID)
    assert pair is not None and pair[0].parsed.subject.rfc4514_string() == f"CN={names.dns_name('operator', UID)}"
