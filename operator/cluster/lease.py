"""Leader election by a Lease. Only the holder reconciles; the other replica keeps its caches current and takes over.

crash       the Lease was not renewed for LEASE_DURATION_S by the other replica's clock: that replica takes it
clean stop  the holder clears the Lease: the other replica takes it within POLL_S
fence       a holder starts no write later than FENCE_S after the start of its last renewal, so that its last write ends
            before another replica can take the Lease: FENCE_S + WRITE_TIMEOUT_S < LEASE_DURATION_S

The Lease is also that of its namespace: an operator of another installation with services there takes the same one
(`namespace_leases.py`), for longer.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from octavo.operator.cluster.kube import LEASE, Kube, KubeError, Object

LEASE_NAME = "octavo-operator"
LEASE_DURATION_S = 13
FENCE_S = 8.0
WRITE_TIMEOUT_S = 4.0
RENEW_S = 2.5
POLL_S = 1.0

log = logging.getLogger(__name__)
OnOther = Callable[[str, str], Awaitable[None]]  # namespace, why its services are left alone


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """Last observed change of the Lease, by this replica's monotonic clock: the holder's clock may be wrong."""

    holder: str
    version: str
    changed_at: float
    duration_s: float = LEASE_DURATION_S  # as the holder has set it, at least LEASE_DURATION_S

    def updated(self, lease: Object, now: float) -> "LeaseObservation":
        version, spec = lease["metadata"]["resourceVersion"], lease.get("spec", {})
        changed_at = self.changed_at if version == self.version else now
        duration_s = max(LEASE_DURATION_S, int(spec.get("leaseDurationSeconds") or 0))
        return LeaseObservation(spec.get("holderIdentity") or "", version, changed_at, duration_s)

    def free(self, now: float) -> bool:
        return not self.holder or now - self.changed_at > self.duration_s


class Lease:
    """Takes and renews the Lease; every write checks `held()`, the fence."""

    def __init__(self, kube: Kube, namespace: str, identity: str, on_other: OnOther | None = None) -> None:
        """on_other: called when an operator of another installation is found to hold the Lease."""
        self._kube, self._namespace, self.identity, self._on_other = kube, namespace, identity, on_other
        self._renewed = float("-inf")
        self._observed = LeaseObservation("", "", float("-inf"))
        self.gained = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()
        self._shown_holder = ""  # that the log has named last

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def other_installation(self) -> str:
        """The holder, if it is an operator of another installation; else empty."""
        holder = self._observed.holder
        return "" if self.held() or "/" not in holder else holder

    def held(self) -> bool:
        return time.monotonic() - self._renewed < FENCE_S

    async def run(self) -> None:
        while True:
            await self.step()
            self._announce()
            await asyncio.sleep(RENEW_S if self.held() else POLL_S)

    async def step(self) -> None:
        """Read the Lease once; renew it if this replica holds it, take it if it is free."""
        started = time.monotonic()
        try:
            lease = await self._kube.get(LEASE, self._namespace, LEASE_NAME, timeout_s=WRITE_TIMEOUT_S)
            if lease is None:
                await self._create()
            else:
                # The time of the answer: a renewal in the answer cannot be later.
                seen_at = time.monotonic()
                self._observed = self._observed.updated(lease, seen_at)
                if self._observed.holder != self.identity and not self._observed.free(seen_at):
                    self._renewed = float("-inf")
                    await self._show_holder(self._observed.holder)
                    return
                await self._write(lease, self.identity)
            self._renewed = started
        except KubeError as error:
            if error.status != 409:  # 409: another replica was faster
                log.warning("lease %s/%s: %s", self._namespace, LEASE_NAME, error)

    async def _show_holder(self, holder: str) -> None:
        if holder == self._shown_holder:
            return
        self._shown_holder = holder
        log.info("on standby: %s holds the lease %s/%s", holder, self._namespace, LEASE_NAME)
        if self.other_installation and self._on_other is not None:
            await self._on_other(self._namespace, f"{holder} holds the lease {LEASE_NAME}")

    def _announce(self) -> None:
        if self.held() and not self.gained.is_set():
            self._shown_holder = ""
            log.info("gained the lease %s/%s as %s", self._namespace, LEASE_NAME, self.identity)
            self.lost.clear()
            self.gained.set()
        elif not self.held() and self.gained.is_set():
            log.warning("lost the lease %s/%s", self._namespace, LEASE_NAME)
            self.gained.clear()
            self.lost.set()

    async def release(self) -> None:
        """Clear the Lease at a clean stop, once no write is running."""
        if not self.held():
            return
        self._renewed = float("-inf")
        try:
            lease = await self._kube.get(LEASE, self._namespace, LEASE_NAME, timeout_s=WRITE_TIMEOUT_S)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                await self._write(lease, "")
        except KubeError as error:
            log.warning("the lease could not be released, it expires in %d s: %s", LEASE_DURATION_S, error)

    async def _create(self) -> None:
        body = lease_object(self._namespace, lease_spec({}, self.identity, LEASE_DURATION_S))
        await self._kube.call("POST", LEASE.path(self._namespace), body=body, timeout_s=WRITE_TIMEOUT_S)

    async def _write(self, lease: Object, holder: str) -> None:
        """Replace the Lease at the version that was read: of two concurrent writers one gets a conflict."""
        body = {**lease, "spec": lease_spec(lease.get("spec", {}), holder, LEASE_DURATION_S)}
        path = LEASE.path(self._namespace, LEASE_NAME)
        await self._kube.call("PUT", path, body=body, timeout_s=WRITE_TIMEOUT_S)


def lease_object(namespace: str, spec: Object) -> Object:
    """A new Lease of a namespace."""
    metadata = {"name": LEASE_NAME, "namespace": namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


def lease_spec(old: Object, holder: str, duration_s: int) -> Object:
    """The spec of a Lease that `holder` takes or renews now; "" releases it. old: the spec before."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    moved = holder != (old.get("holderIdentity") or "")
    transitions = int(old.get("leaseTransitions") or 0) + (1 if moved and holder else 0)
    acquired = now if moved else old.get("acquireTime", now)
    spec = {"leaseDurationSeconds": duration_s, "renewTime": now, "leaseTransitions": transitions}
    return spec | {"holderIdentity": holder, "acquireTime": acquired}
