"""Turns: when a service's object may be written: at once, unless others change it back or it was written too often."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.operator.drift.restores import Drift, Key
from octavo.operator.groups.snapshot import FieldConflict
from octavo.operator.pace import Pace

BURST, INTERVAL_S = 10, 1.0  # writes of one object at once, and seconds per further write


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of one apply. at: monotonic time from which it may be sent."""

    service_uid: str
    namespace: str
    key: Key
    hashed: int  # of the desired object
    at: float


@dataclass(slots=True)
class Turns:
    """Of all services. The clock is an argument."""

    _pace: Pace = field(default_factory=lambda: Pace(BURST, INTERVAL_S))
    _drift: dict[str, Drift] = field(default_factory=dict)  # by the service's uid

    def of_apply(self, service_uid: str, desired: Mapping[str, Any], now: float) -> Turn:  # Any: Kubernetes JSON
        """The turn of an apply of an object that is not as desired."""
        namespace, name = desired["metadata"]["namespace"], desired["metadata"]["name"]
        key, hashed = (desired["kind"], name), hash(json.dumps(desired, sort_keys=True))
        at = self.drift(service_uid).changed(key, hashed, now)
        return Turn(service_uid, namespace, key, hashed, max(at, self._pace.next_at((namespace, *key), now)))

    def of_status(self, service_uid: str, namespace: str, key: Key, now: float) -> Turn:
        """The turn of a write of the status, which is only paced: its changes are no conflict, and are not reported."""
        return Turn(service_uid, namespace, key, 0, self._pace.next_at((namespace, *key), now))

    def begin(self, turn: Turn, now: float) -> None:
        self._pace.take((turn.namespace, *turn.key), now)

    def done(self, turn: Turn, now: float, holds: bool) -> None:
        """The apply was sent. holds: the API server's answer is as desired."""
        self.drift(turn.service_uid).applied(turn.key, turn.hashed, now, holds)

    def of_delete(self, service_uid: str, namespace: str, key: Key, now: float) -> float:
        """Seconds until the object may be deleted; 0 begins the deletion."""
        paced = ("delete", namespace, *key)
        wait_s = self._pace.next_at(paced, now) - now
        if wait_s <= 0:
            self._pace.take(paced, now)
            self.drift(service_uid).forget(key)
        return wait_s

    def held(self, service_uid: str, key: Key, now: float) -> None:
        """An object is as desired, or is being deleted, so that there is nothing to apply."""
        if service_uid in self._drift:
            self._drift[service_uid].held(key, now)

    def drift(self, service_uid: str) -> Drift:
        return self._drift.setdefault(service_uid, Drift())

    def conflicts(self, service_uid: str, now: float) -> tuple[FieldConflict, ...]:
        """Fields of the service's objects that are changed each time after they were applied."""
        return self._drift[service_uid].conflicts(now) if service_uid in self._drift else ()

    def pending_s(self, service_uid: str, now: float) -> float | None:
        """Seconds until an object of the service that is not as desired may be applied again; None: all hold."""
        return self._drift[service_uid].pending_s(now) if service_uid in self._drift else None

    def settles_s(self, service_uid: str, now: float) -> float | None:
        """Seconds until a conflict of the service may have settled; None: there is none."""
        return self._drift[service_uid].settles_s(now) if service_uid in self._drift else None

    def forget(self, service_uid: str) -> None:
        self._drift.pop(service_uid, None)
