"""Kubernetes events on an InferenceService: one for each transition that a plan names, bounded whatever happens."""

import datetime
import logging
import time
import uuid
from dataclasses import dataclass, field

from octavo.operator.actions import Event
from octavo.operator.apply import Writer
from octavo.operator.kube import SERVICE_CR, USER_AGENT, KubeError, Object

REPEAT_S = 600.0  # the same words again within this time are not worth an event
BURST, REFILL_S = 20.0, 30.0  # for one service

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Bound:
    """What one service may still send. The clock is an argument."""

    tokens: float = BURST
    at: float = 0.0
    said: dict[tuple[str, str], float] = field(default_factory=dict)

    def allows(self, event: Event, now: float) -> bool:
        self.tokens, self.at = min(BURST, self.tokens + max(0.0, now - self.at) / REFILL_S), now
        self.said = {words: at for words, at in self.said.items() if now - at < REPEAT_S}
        words = (event.reason, event.message)
        if words in self.said or self.tokens < 1:
            return False
        self.said[words] = now
        self.tokens -= 1
        return True


class Recorder:
    """Sends events. One that cannot be sent is logged and lost: events are a comfort, the status is the record."""

    def __init__(self, writer: Writer, identity: str) -> None:
        self._writer, self._identity = writer, identity
        self._bounds: dict[str, Bound] = {}

    async def record(self, resource: Object, event: Event) -> None:
        bound = self._bounds.setdefault(resource["metadata"]["uid"], Bound())
        if not bound.allows(event, time.monotonic()):
            return
        try:
            await self._writer.event(self._object(resource, event))
        except KubeError as error:
            log.warning("event %s on %s was not recorded: %s", event.reason, resource["metadata"]["name"], error)

    def forget(self, service_uid: str) -> None:
        self._bounds.pop(service_uid, None)

    def _object(self, resource: Object, event: Event) -> Object:
        meta, now = resource["metadata"], datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": SERVICE_CR.api_version, "kind": SERVICE_CR.kind}
        about |= {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": about,
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1024],
            "source": {"component": USER_AGENT},
            "reportingComponent": USER_AGENT,
            "reportingInstance": self._identity[:128],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
