"""The certificates of each service as Secrets: `<name>-ca` (mounted nowhere), `<name>-worker-tls`, `<name>-router-tls`.

Secrets are read by name, never listed or watched: the operator's role covers only its own. So they are checked again
after RECHECK_S, and sooner while the service is not ready; the check reads resource versions alone while they are
unchanged. A CA whose Secret was deleted is written back from memory: with a new CA, peers that have read it would not
trust peers that have not.
"""

import base64
import datetime
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.cluster import pki
from octavo.operator.cluster.apply import NameConflict, owned_by
from octavo.operator.cluster.kube import SECRET, Kube, Object
from octavo.operator.cluster.pki import Authority, Pair
from octavo.operator.groups import names
from octavo.operator.planning.actions import Certificates, Leaf

RECHECK_S = (40.0, 55.0)  # drawn at random, so that services are not checked together
RECHECK_SOON_S = 5.0  # while the service is not ready: a Secret may have been deleted
REVALIDATE_S = (1800.0, 3600.0)  # until unchanged certificates are parsed again; they are valid for months
OPERATOR_LEAF_LIFETIME_S = 12 * 3600.0

log = logging.getLogger(__name__)
Write = Callable[[Object, str], Awaitable[bool]]  # applies one Secret for the service of a uid
Held = Callable[[Object, str], None]  # called with a Secret that needs no write


@dataclass(slots=True)
class CachedCertificates:
    """Certificates of one service in memory. Times are of the monotonic clock."""

    authority: Authority
    check_at: float
    checked_at: float
    operator: Pair | None = None
    operator_until: float = 0.0
    versions: tuple[str | None, ...] = ()  # resource versions of the valid Secrets, the CA's first; (): not known
    good_until: float = 0.0


class CertificateKeeper:
    """Creates and renews the Secrets, and issues the operator's own client certificates."""

    def __init__(self, kube: Kube, write: Write, held: Held) -> None:
        self._kube, self._write, self._held = kube, write, held
        self._cached: dict[str, CachedCertificates] = {}

    def forget(self, service_uid: str) -> None:
        self._cached.pop(service_uid, None)

    def known(self, service_uid: str) -> bool:
        """True once the service's Secrets have been read or written."""
        return service_uid in self._cached

    def check_in(self, service_uid: str) -> float:
        """Seconds until the next check of the service's Secrets."""
        known = self._cached.get(service_uid)
        return 0.0 if known is None else max(0.0, known.check_at - time.monotonic())

    def due(self, service_uid: str, ready: bool) -> bool:
        known, now = self._cached.get(service_uid), time.monotonic()
        return known is None or now >= known.check_at or (not ready and now >= known.checked_at + RECHECK_SOON_S)

    async def ensure(self, namespace: str, desired: Certificates) -> None:
        """Write each Secret that is missing, damaged or due for renewal. Raises NameConflict, NotLeading, KubeError."""
        now, known = datetime.datetime.now(datetime.UTC), self._cached.get(desired.service_uid)
        if known is not None and await self._are_good(namespace, desired, known):
            self._checked(known)
            return
        live = await self._read(namespace, desired.ca_secret, desired.service_uid)
        found = read_authority(live)
        ca = pki.authority(known.authority if live is None and known else found, desired.service_uid, now)
        if ca != found:
            log.info(
                "secret %s/%s: writing the CA (%s)", namespace, desired.ca_secret, "renewal" if found else "absent"
            )
            await self._write(
                secret_object(namespace, desired.ca_secret, authority_data(ca), desired.metadata), desired.service_uid
            )
        elif live is not None:
            self._held(live, desired.service_uid)
        versions = [_version(live) if ca == found else None]
        for leaf in desired.leaves:
            versions.append(await self._ensure_leaf(namespace, leaf, ca, desired, now))
        self._remember(desired.service_uid, ca, tuple(versions))

    async def _are_good(self, namespace: str, desired: Certificates, known: CachedCertificates) -> bool:
        """True if no Secret has changed since the last validation, and the next one is not due."""
        if None in known.versions or not known.versions or time.monotonic() >= known.good_until:
            return False
        secrets = (desired.ca_secret, *(leaf.secret for leaf in desired.leaves))
        return tuple([await self._kube.version(SECRET, namespace, secret) for secret in secrets]) == known.versions

    async def _read(self, namespace: str, secret: str, service_uid: str) -> Object | None:
        """The Secret, or None. Raises NameConflict: a CA of another owner must not be used."""
        live = await self._kube.get(SECRET, namespace, secret)
        if live is not None and not owned_by(live, service_uid):
            raise NameConflict(SECRET.kind, namespace, secret)
        return live

    async def _ensure_leaf(
        self, namespace: str, leaf: Leaf, ca: Authority, desired: Certificates, now: datetime.datetime
    ) -> str | None:
        """Resource version of the Secret if it is valid; None if it was written."""
        live = await self._read(namespace, leaf.secret, desired.service_uid)
        pair = read_pair(live)
        if pair is None or not pki.leaf_is_good(pair, ca, leaf.dns_name, now):
            pair = pki.new_leaf(ca, leaf.dns_name, now)
        data = _encode({"ca.crt": ca.bundle, "tls.crt": pair.certificate, "tls.key": pair.key})
        if live is None or live.get("data") != data:
            log.info("secret %s/%s: writing the certificate of %s", namespace, leaf.secret, leaf.dns_name)
            await self._write(secret_object(namespace, leaf.secret, data, desired.metadata), desired.service_uid)
            return None
        self._held(live, desired.service_uid)
        return _version(live)

    def _remember(self, service_uid: str, ca: Authority, versions: tuple[str | None, ...]) -> None:
        now, old = time.monotonic(), self._cached.get(service_uid)
        known = CachedCertificates(ca, now, now, versions=versions, good_until=now + random.uniform(*REVALIDATE_S))
        if old is not None and old.authority == ca:
            known.operator, known.operator_until = old.operator, old.operator_until
        self._cached[service_uid] = known
        self._checked(known)

    @staticmethod
    def _checked(known: CachedCertificates) -> None:
        known.checked_at = time.monotonic()
        known.check_at = known.checked_at + random.uniform(*RECHECK_S)

    def operator_pair(self, service_uid: str) -> tuple[Pair, bytes] | None:
        """(client certificate, trust bundle) for the service's Status endpoints; None before `ensure` has run."""
        known = self._cached.get(service_uid)
        if known is None:
            return None
        if known.operator is None or time.monotonic() > known.operator_until:
            known.operator = pki.new_leaf(
                known.authority, names.dns_name("operator", service_uid), datetime.datetime.now(datetime.UTC)
            )
            known.operator_until = time.monotonic() + OPERATOR_LEAF_LIFETIME_S
        return known.operator, known.authority.bundle


def secret_object(namespace: str, name: str, data: dict[str, str], metadata: Mapping[str, Any]) -> Object:
    """The Secret with the plan's labels and owner. data: base64."""  # Any: Kubernetes JSON
    whole = {**metadata, "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": whole, "data": data}


def read_pair(secret: Object | None, certificate: str = "tls.crt", key: str = "tls.key") -> Pair | None:
    data = _decode(secret)
    if not data.get(certificate) or not data.get(key):
        return None
    return Pair(data[certificate], data[key])


def read_authority(secret: Object | None) -> Authority | None:
    """The CA in a Secret; None if there is none or it is damaged."""
    current, successor = read_pair(secret), read_pair(secret, "next.crt", "next.key")
    if current is None:
        return None
    try:
        current.sign_key(), current.ends, successor and successor.begins
    except (ValueError, TypeError) as error:
        log.warning("secret %s has no usable CA, creating a new one: %s", (secret or {})["metadata"]["name"], error)
        return None
    return Authority(current, successor, _decode(secret).get("previous.crt", b""))


def authority_data(ca: Authority) -> dict[str, str]:
    successor = {"next.crt": ca.next.certificate, "next.key": ca.next.key} if ca.next else {}
    previous = {"previous.crt": ca.previous} if ca.previous else {}
    own = {"ca.crt": ca.bundle, "tls.crt": ca.current.certificate, "tls.key": ca.current.key}
    return _encode({**own, **successor, **previous})


def _version(secret: Object | None) -> str | None:
    return None if secret is None else str(secret["metadata"]["resourceVersion"])


def _decode(secret: Object | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _encode(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
