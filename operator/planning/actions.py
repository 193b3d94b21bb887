"""Actions of a Plan. `reconcile` runs them in the order certificates, apply, delete, delete_pods, status, events.

All objects are in the service's namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.groups import names
from octavo.operator.groups.snapshot import Object
from octavo.operator.specs import common


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event on the InferenceService."""

    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An object to write by server-side apply, unless the live object already has its fields. event: recorded once it
    is written."""

    object: Object
    reason: str
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete, with its uid as precondition. event: recorded once its deletion has begun."""

    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    grace_s: int | None = None  # None: the object's own grace period
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate in a Secret with the entries ca.crt, tls.crt and tls.key."""

    secret: str
    dns_name: str  # its SAN: ROLE.UID.octavo


@dataclass(frozen=True, slots=True)
class Certificates:
    """The CA of a service and the leaves that it signs. metadata: labels and owner of each Secret."""

    service_uid: str
    ca_secret: str
    leaves: tuple[Leaf, ...]
    metadata: Mapping[str, Any]  # Any: Kubernetes JSON

    @classmethod
    def of(cls, namespace: str, name: str, uid: str) -> "Certificates":
        """Of the service of this name."""
        ca, worker_tls, router_tls = names.secrets(name)
        return cls(
            service_uid=uid,
            ca_secret=ca,
            leaves=(Leaf(worker_tls, names.dns_name("worker", uid)), Leaf(router_tls, names.dns_name("router", uid))),
            metadata={
                "namespace": namespace,
                "labels": names.common_labels(name),
                "ownerReferences": [common.owner(name, uid)],
            },
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions for one service, with their reasons. status: the whole desired status; None leaves it unchanged."""

    apply: tuple[Apply, ...] = ()
    delete: tuple[Delete, ...] = ()
    delete_pods: tuple[Delete, ...] = ()
    certificates: Certificates | None = None
    status: Mapping[str, Any] | None = None  # Any: Kubernetes JSON
    events: tuple[Event, ...] = ()
    poll_after: float | None = None  # seconds until the next poll of what cannot be watched; None: no poll
    changes_after: float | None = None  # seconds until the plan differs though nothing has changed; None: never

    @property
    def requeue_after(self) -> float | None:
        """Seconds until the next reconcile without a change; None: only the resync."""
        return min((time for time in (self.poll_after, self.changes_after) if time is not None), default=None)
