"""Kubernetes events on an InferenceService: one for each transition of a plan, with a rate limit per service."""

import datetime
import logging
import time
import uuid
from dataclasses import dataclass, field

from octavo.operator.cluster.apply import Writer
from octavo.operator.cluster.kube import SERVICE_CR, USER_AGENT, KubeError, Object
from octavo.operator.planning.actions import Event

REPEAT_S = 600.0  # an event with the same reason and message is not repeated within this time
BURST, REFILL_S = 20.0, 30.0  # events, and seconds per further event, of one service

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventBudget:
    """Token bucket of one service's events. The clock is an argument."""

    tokens: float = BURST
    at: float = 0.0
    sent: dict[tuple[str, str], float] = field(default_factory=dict)

    def allows(self, event: Event, now: float) -> bool:
        self.tokens, self.at = min(BURST, self.tokens + max(0.0, now - self.at) / REFILL_S), now
        self.sent = {text: at for text, at in self.sent.items() if now - at < REPEAT_S}
        text = (event.reason, event.message)
        if text in self.sent or self.tokens < 1:
            return False
        self.sent[text] = now
        self.tokens -= 1
        return True


class Recorder:
    """Sends events. An event that cannot be sent is logged and dropped: the status has the same information."""

    def __init__(self, writer: Writer, identity: str) -> None:
        self._writer, self._identity = writer, identity
        self._budgets: dict[str, EventBudget] = {}

    async def record(self, resource: Object, event: Event) -> None:
        budget = self._budgets.setdefault(resource["metadata"]["uid"], EventBudget())
        if not budget.allows(event, time.monotonic()):
            return
        try:
            await self._writer.event(self._object(resource, event))
        except KubeError as error:
            log.warning("event %s on %s was not recorded: %s", event.reason, resource["metadata"]["name"], error)

    def forget(self, service_uid: str) -> None:
        self._budgets.pop(service_uid, None)

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
