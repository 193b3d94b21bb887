"""Kubernetes events on an InferenceService: one for each transition of a plan, with a rate limit per service.

An event with the type, reason and message of an earlier one raises that one's count and time, as kubelets do.
"""

import datetime
import logging
import time
import uuid
from dataclasses import dataclass, field

from octavo.operator.cluster.apply import Writer
from octavo.operator.cluster.kube import EVENT, LEASE, SERVICE_CR, USER_AGENT, Kube, KubeError, Object
from octavo.operator.cluster.lease import LEASE_NAME, WRITE_TIMEOUT_S
from octavo.operator.planning.actions import Event

KEEP_S = 3600.0  # the API server deletes an event as long after its last change
BURST, REFILL_S = 20.0, 30.0  # writes of events, and seconds per further write, of one service
FOR_NEW = 10.0  # of them only for events that have not occurred before: others may occur at each look

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recorded:
    """An event that has occurred `count` times. name: of its object; written: the API server has one."""

    name: str
    count: int = 0
    seen: float = 0.0
    written: bool = False


@dataclass(slots=True)
class EventCounter:
    """Occurrences of one service's events, and a token bucket of their writes. The clock is an argument."""

    tokens: float = BURST
    at: float = 0.0
    known: dict[Event, Recorded] = field(default_factory=dict)

    def occurred(self, event: Event, now: float) -> Recorded | None:
        """Count the event. Returns what to write; None: the limit is reached, a later write has this count too."""
        self.tokens, self.at = min(BURST, self.tokens + max(0.0, now - self.at) / REFILL_S), now
        self.known = {event: kept for event, kept in self.known.items() if now - kept.seen < KEEP_S}
        kept = self.known.setdefault(event, Recorded(uuid.uuid4().hex[:16]))
        kept.count, kept.seen = kept.count + 1, now
        if self.tokens < (1 if kept.count == 1 else FOR_NEW + 1):
            return None
        self.tokens -= 1
        return kept


class Recorder:
    """Sends events. An event that cannot be sent is logged and dropped: the status has the same information."""

    def __init__(self, writer: Writer, identity: str) -> None:
        self._writer, self._identity = writer, identity
        self._counters: dict[str, EventCounter] = {}

    async def record(self, resource: Object, event: Event) -> None:
        counter = self._counters.setdefault(resource["metadata"]["uid"], EventCounter())
        recorded = counter.occurred(event, time.monotonic())
        if recorded is None:
            return
        try:
            recorded.written = await self._write(self._object(resource, event, recorded), recorded.written)
        except KubeError as error:
            if not error.is_termination:
                log.warning("event %s on %s was not recorded: %s", event.reason, resource["metadata"]["name"], error)

    async def _write(self, item: Object, is_known: bool) -> bool:
        if is_known and await self._writer.event_again(item):
            return True
        await self._writer.event(item)
        return True

    def forget(self, service_uid: str) -> None:
        self._counters.pop(service_uid, None)

    def _object(self, resource: Object, event: Event, recorded: Recorded) -> Object:
        meta = resource["metadata"]
        about = {"apiVersion": SERVICE_CR.api_version, "kind": SERVICE_CR.kind}
        about |= {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        return event_object(about, event, f"{meta['name']}.{recorded.name}", recorded.count, self._identity)


def event_object(about: Object, event: Event, name: str, count: int, identity: str) -> Object:
    """An Event that occurs now. about: reference to its object; identity: of the process that reports it."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": about["namespace"], "name": name},
        "involvedObject": about,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": USER_AGENT},
        "reportingComponent": USER_AGENT,
        "reportingInstance": identity[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": count,
    }


async def record_left_alone(kube: Kube, identity: str, namespace: str, why: str) -> None:
    """An event on the Lease of a namespace, by an operator that does not write there; else it would write nothing."""
    about = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "namespace": namespace, "name": LEASE_NAME}
    event = Event("Warning", "OtherOperator", f"{identity} leaves the services of this namespace alone: {why}")
    item = event_object(about, event, f"{LEASE_NAME}.{uuid.uuid4().hex[:16]}", 1, identity)
    try:
        await kube.call("POST", EVENT.path(namespace), body=item, timeout_s=WRITE_TIMEOUT_S)
    except KubeError as error:
        log.warning("event %s on lease %s/%s was not recorded: %s", event.reason, namespace, LEASE_NAME, error)
