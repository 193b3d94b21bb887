"""What a Plan is made of. `apply` executes one in the order certificates, apply, delete, delete_pods, status, events.

All objects are of the service's namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.operator.snapshot import Object


@dataclass(frozen=True, slots=True)
class Apply:
    """An object to write by server-side apply, unless what we own of the live one already holds it."""

    object: Object
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete, only if it still has this uid."""

    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    grace_s: int | None = None  # None: the object's own grace period


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate that a Secret must hold (ca.crt, tls.crt, tls.key)."""

    secret: str
    dns_name: str  # its SAN: ROLE.UID.octavo


@dataclass(frozen=True, slots=True)
class Certificates:
    """The service's own CA and the leaves that it signs. `metadata` is what each Secret carries (labels, owner)."""

    service_uid: str
    ca_secret: str
    leaves: tuple[Leaf, ...]
    metadata: Mapping[str, Any]  # Any: Kubernetes JSON


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event on the InferenceService."""

    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and why. `status` is the whole wished status; None leaves it as it is."""

    apply: tuple[Apply, ...] = ()
    delete: tuple[Delete, ...] = ()
    delete_pods: tuple[Delete, ...] = ()
    certificates: Certificates | None = None
    status: Mapping[str, Any] | None = None  # Any: Kubernetes JSON
    events: tuple[Event, ...] = ()
    reasons: tuple[str, ...] = ()
    poll_after: float | None = None  # seconds until something that nobody tells is to be asked for; None: nothing is
    changes_after: float | None = None  # seconds until time alone makes this plan another one; None: it never does

    @property
    def requeue_after(self) -> float | None:
        """Seconds until the next look; None: only changes and the resync matter."""
        return min((time for time in (self.poll_after, self.changes_after) if time is not None), default=None)
