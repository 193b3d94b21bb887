"""The certificates of each service as Secrets: `<name>-ca` (mounted nowhere), `<name>-worker-tls`, `<name>-router-tls`.

Secrets are read by name, never listed nor watched: the operator may see only its own. So they are looked at again after
RECHECK_S, and sooner while the service is not ready; their versions suffice while those are what was found good. An
authority whose Secret was deleted is written back from memory: a new one would part the peers that have seen it from
those that have not.
"""

import base64
import datetime
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator import names, pki
from octavo.operator.actions import Certificates, Leaf
from octavo.operator.apply import NameConflict, owned_by
from octavo.operator.kube import SECRET, Kube, Object
from octavo.operator.pki import Authority, Pair

RECHECK_S = (40.0, 55.0)  # drawn at random, so that services are not read in step
RECHECK_SOON_S = 5.0  # while the service is not ready: somebody may have deleted a Secret
JUDGE_S = (1800.0, 3600.0)  # how long certificates that are good are believed to be: they live for months
OPERATOR_LEAF_LIFE_S = 12 * 3600.0

log = logging.getLogger(__name__)
Write = Callable[[Object, str], Awaitable[bool]]  # applies one Secret for the service of a uid


@dataclass(slots=True)
class Known:
    """What is held in memory for one service."""

    authority: Authority
    check_at: float
    checked_at: float
    operator: Pair | None = None
    operator_until: float = 0.0
    versions: tuple[str | None, ...] = ()  # of the Secrets as they were found good, the CA's first; (): not known
    good_until: float = 0.0


class CertificateKeeper:
    """Ensures the Secrets and mints the operator's own client certificates."""

    def __init__(self, kube: Kube, write: Write) -> None:
        self._kube, self._write = kube, write
        self._known: dict[str, Known] = {}

    def forget(self, service_uid: str) -> None:
        self._known.pop(service_uid, None)

    def known(self, service_uid: str) -> bool:
        """Its Secrets were there, or were written, at some time."""
        return service_uid in self._known

    def check_in(self, service_uid: str) -> float:
        """Seconds until the service's Secrets are due."""
        known = self._known.get(service_uid)
        return 0.0 if known is None else max(0.0, known.check_at - time.monotonic())

    def due(self, service_uid: str, ready: bool) -> bool:
        known, now = self._known.get(service_uid), time.monotonic()
        return known is None or now >= known.check_at or (not ready and now >= known.checked_at + RECHECK_SOON_S)

    async def ensure(self, namespace: str, wish: Certificates) -> None:
        """Read the service's Secrets and write those that are missing, damaged or due."""
        now, known = datetime.datetime.now(datetime.UTC), self._known.get(wish.service_uid)
        if known is not None and await self._are_good(namespace, wish, known):
            self._checked(known)
            return
        held = await self._held(namespace, wish.ca_secret, wish.service_uid)
        found = read_authority(held)
        ca = pki.authority(known.authority if held is None and known else found, wish.service_uid, now)
        if ca != found:
            log.info("secret %s/%s: writing the CA (%s)", namespace, wish.ca_secret, "renewal" if found else "absent")
            await self._write(
                secret_object(namespace, wish.ca_secret, authority_data(ca), wish.metadata), wish.service_uid
            )
        versions = [_version(held) if ca == found else None]
        for leaf in wish.leaves:
            versions.append(await self._ensure_leaf(namespace, leaf, ca, wish, now))
        self._remember(wish.service_uid, ca, tuple(versions))

    async def _are_good(self, namespace: str, wish: Certificates, known: Known) -> bool:
        """No Secret has changed since all were found good, which is not long ago."""
        if None in known.versions or not known.versions or time.monotonic() >= known.good_until:
            return False
        secrets = (wish.ca_secret, *(leaf.secret for leaf in wish.leaves))
        return tuple([await self._kube.version(SECRET, namespace, secret) for secret in secrets]) == known.versions

    async def _held(self, namespace: str, secret: str, service_uid: str) -> Object | None:
        """A Secret of ours. Raises NameConflict: what somebody else put there must not become our CA."""
        held = await self._kube.get(SECRET, namespace, secret)
        if held is not None and not owned_by(held, service_uid):
            raise NameConflict(SECRET.kind, namespace, secret)
        return held

    async def _ensure_leaf(
        self, namespace: str, leaf: Leaf, ca: Authority, wish: Certificates, now: datetime.datetime
    ) -> str | None:
        """The version of a Secret that is good as it is; None: it was written."""
        held = await self._held(namespace, leaf.secret, wish.service_uid)
        pair = read_pair(held)
        if pair is None or not pki.leaf_is_good(pair, ca, leaf.dns_name, now):
            pair = pki.new_leaf(ca, leaf.dns_name, now)
        data = _encode({"ca.crt": ca.bundle, "tls.crt": pair.certificate, "tls.key": pair.key})
        if held is None or held.get("data") != data:
            log.info("secret %s/%s: writing the certificate of %s", namespace, leaf.secret, leaf.dns_name)
            await self._write(secret_object(namespace, leaf.secret, data, wish.metadata), wish.service_uid)
            return None
        return _version(held)

    def _remember(self, service_uid: str, ca: Authority, versions: tuple[str | None, ...]) -> None:
        now, old = time.monotonic(), self._known.get(service_uid)
        known = Known(ca, now, now, versions=versions, good_until=now + random.uniform(*JUDGE_S))
        if old is not None and old.authority == ca:
            known.operator, known.operator_until = old.operator, old.operator_until
        self._known[service_uid] = known
        self._checked(known)

    @staticmethod
    def _checked(known: Known) -> None:
        known.checked_at = time.monotonic()
        known.check_at = known.checked_at + random.uniform(*RECHECK_S)

    def operator_pair(self, service_uid: str) -> tuple[Pair, bytes] | None:
        """(client certificate, trust bundle) for the service's Status endpoints; None before `ensure` has run."""
        known = self._known.get(service_uid)
        if known is None:
            return None
        if known.operator is None or time.monotonic() > known.operator_until:
            known.operator = pki.new_leaf(
                known.authority, names.dns_name("operator", service_uid), datetime.datetime.now(datetime.UTC)
            )
            known.operator_until = time.monotonic() + OPERATOR_LEAF_LIFE_S
        return known.operator, known.authority.bundle


def secret_object(namespace: str, name: str, data: dict[str, str], metadata: Mapping[str, Any]) -> Object:
    """The Secret with the labels and the owner that the plan gives it."""  # Any: Kubernetes JSON
    whole = {**metadata, "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": whole, "data": data}


def read_pair(secret: Object | None, certificate: str = "tls.crt", key: str = "tls.key") -> Pair | None:
    data = _decode(secret)
    if not data.get(certificate) or not data.get(key):
        return None
    return Pair(data[certificate], data[key])


def read_authority(secret: Object | None) -> Authority | None:
    """None: there is none, or it is damaged."""
    current, successor = read_pair(secret), read_pair(secret, "next.crt", "next.key")
    if current is None:
        return None
    try:
        current.sign_key(), current.ends, successor and successor.begins
    except (ValueError, TypeError) as error:
        log.warning("secret %s holds no usable CA, a new one is made: %s", (secret or {})["metadata"]["name"], error)
        return None
    return Authority(current, successor, _decode(secret).get("previous.crt", b""))


def authority_data(ca: Authority) -> dict[str, str]:
    successor = {"next.crt": ca.next.certificate, "next.key": ca.next.key} if ca.next else {}
    previous = {"previous.crt": ca.previous} if ca.previous else {}
    own = {"ca.crt": ca.bundle, "tls.crt": ca.current.certificate, "tls.key": ca.current.key}
    return _encode({**own, **successor, **previous})


def _version(held: Object | None) -> str | None:
    return None if held is None else str(held["metadata"]["resourceVersion"])


def _decode(secret: Object | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _encode(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
