"""One Lease a namespace: of two operators whose scopes overlap, the one that holds it writes there.

The Lease is named like that of the leader election, so that an operator of the namespace and one of the whole cluster
compete for the same object. Its holder is an installation, NAMESPACE/octavo-operator of its own Lease: which replica of
it acts is decided there. It is taken when a service of the namespace is reconciled first and released when the last one
is gone; of all of them at most RENEWALS_PER_S are renewed each second. A stop, clean or not, leaves it to the next
replica of the installation; without one it expires.

    held ── lost (expired, released) ──> taken by the other operator ── released or expired ──> held again, by polling
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from octavo.operator.cluster.kube import LEASE, Kube, KubeError, Object
from octavo.operator.cluster.lease import (
    LEASE_NAME,
    WRITE_TIMEOUT_S,
    Lease,
    LeaseObservation,
    OnOther,
    lease_object,
    lease_spec,
)
from octavo.operator.metrics import Metrics

RENEW_S, RENEWALS_PER_S = 15.0, 10.0
RENEWALS = 3  # in the duration of a Lease
POLL_S = 2.0  # of a namespace that another operator holds

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Namespace:
    """One namespace. why: it is not held; "" if it is, or if that is not known yet."""

    observed: LeaseObservation = field(default_factory=lambda: LeaseObservation("", "", float("-inf")))
    lease: Object | None = None  # as last written
    held_until: float = float("-inf")  # the last moment at which a write may start
    renew_at: float = float("-inf")
    why: str = ""
    missed: bool = False  # a reconcile found it not held
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class NamespaceLeases:
    """The Leases of the namespaces with services. on_blocked: called when the reason changes for which a namespace is
    left alone; on_held: when it is held after a reconcile found that it was not."""

    def __init__(
        self,
        kube: Kube,
        own: Lease,
        meter: Metrics,
        on_blocked: OnOther,
        on_held: Callable[[str], None],
    ) -> None:
        self._kube, self._own, self._meter = kube, own, meter
        self._on_blocked, self._on_held = on_blocked, on_held
        self._identity = f"{own.namespace}/{LEASE_NAME}"
        self._known: dict[str, _Namespace] = {}

    def held(self, namespace: str) -> bool:
        """True if this replica may start a write in the namespace."""
        if not self._own.held():
            return False
        known = self._known.get(namespace)
        return namespace == self._own.namespace or (known is not None and time.monotonic() < known.held_until)

    async def take(self, namespace: str) -> bool:
        """Take the namespace's Lease; False: another operator holds it, or it could not be taken, and `on_held` is
        called once it is. Costs nothing while it is held."""
        if namespace == self._own.namespace:
            return self._own.held()
        known = self._known.setdefault(namespace, _Namespace())
        async with known.lock:
            if time.monotonic() >= known.renew_at:
                await self._renew(namespace, known)
            is_held = self.held(namespace)
            known.missed |= not is_held
        return is_held

    async def run(self, in_use: Callable[[], Iterable[str]]) -> None:
        """Renew what is held, and ask for what others hold, for ever. in_use: the namespaces that have services."""
        while True:
            await asyncio.sleep(1.0)
            if self._own.held():
                used = set(in_use())
                for namespace in [name for name in self._known if name not in used]:
                    await self._release(namespace)
                for namespace in [name for name, known in self._known.items() if time.monotonic() >= known.renew_at]:
                    await self.take(namespace)
            else:
                self._known.clear()  # the replica that leads has the same Leases
            others = sum(bool(known.why) for known in self._known.values())
            self._meter.other_namespaces.set(others + bool(self._own.other_installation))

    async def _renew(self, namespace: str, known: _Namespace) -> None:
        started = time.monotonic()
        try:
            known.lease = await self._written(namespace, known)
        except KubeError as error:
            known.lease = None  # read it again
            known.renew_at = started + POLL_S
            if error.status == 403 and not error.is_termination:
                await self._block(namespace, known, f"it cannot take the lease {LEASE_NAME}: {error.message}")
            elif error.status not in (403, 404, 409):  # of a namespace or a Lease that goes, or another was faster
                log.warning("lease %s/%s: %s", namespace, LEASE_NAME, error)
            return
        if known.lease is None:
            known.renew_at = started + POLL_S
            await self._block(namespace, known, f"{known.observed.holder} holds the lease {LEASE_NAME}")
            return
        known.renew_at = started + self._renew_s()
        known.held_until = started + known.lease["spec"]["leaseDurationSeconds"] - 2 * WRITE_TIMEOUT_S
        if known.why or known.missed:
            known.why, known.missed = "", False
            log.info("took the lease %s/%s", namespace, LEASE_NAME)
            self._on_held(namespace)

    async def _written(self, namespace: str, known: _Namespace) -> Object | None:
        """The Lease as written for us; None if another operator holds it. Raises KubeError."""
        lease = known.lease or await self._kube.get(LEASE, namespace, LEASE_NAME, timeout_s=WRITE_TIMEOUT_S)
        if lease is None:
            body = lease_object(namespace, lease_spec({}, self._identity, self._duration_s()))
            return await self._kube.call("POST", LEASE.path(namespace), body=body, timeout_s=WRITE_TIMEOUT_S)
        seen_at = time.monotonic()
        known.observed = known.observed.updated(lease, seen_at)
        if known.observed.holder != self._identity and not known.observed.free(seen_at):
            return None
        body = {**lease, "spec": lease_spec(lease.get("spec", {}), self._identity, self._duration_s())}
        path = LEASE.path(namespace, LEASE_NAME)
        return await self._kube.call("PUT", path, body=body, timeout_s=WRITE_TIMEOUT_S)

    async def _block(self, namespace: str, known: _Namespace, why: str) -> None:
        known.held_until = float("-inf")
        if known.why != why:
            known.why = why
            log.warning("the services of the namespace %s are left alone: %s", namespace, why)
            await self._on_blocked(namespace, why)

    async def _release(self, namespace: str) -> None:
        known = self._known[namespace]
        async with known.lock:
            self._known.pop(namespace, None)
            if known.lease is None:
                return
            body = {**known.lease, "spec": lease_spec(known.lease["spec"], "", self._duration_s())}
            try:
                path = LEASE.path(namespace, LEASE_NAME)
                await self._kube.call("PUT", path, body=body, timeout_s=WRITE_TIMEOUT_S)
            except KubeError as error:
                if error.status not in (404, 409) and not error.is_termination:
                    log.warning("lease %s/%s was not released: %s", namespace, LEASE_NAME, error)

    def _renew_s(self) -> float:
        return max(RENEW_S, len(self._known) / RENEWALS_PER_S)

    def _duration_s(self) -> int:
        return int(self._renew_s() * RENEWALS + 2 * WRITE_TIMEOUT_S) + 1
