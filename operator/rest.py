"""Between two looks at a service: is anything new to it, and when must it be looked at though nobody tells?

    news ──> plan, apply ──> rest ──┬─ nothing new: only the Secrets are looked at ──> rest, longer each time
      ^                             └─ news, or the time that the plan waits for ──┐
      └────────────────────────────────────────────────────────────────────────────┘

A plan is made of the resource, of the snapshot and of the time. Where the first two are as they were, and the time has
not come, the same plan would be made and found carried out: it is not made. The caches replace an object that changes,
so that two snapshots of nothing new hold the same objects, and it takes microseconds to see that.
"""

import random
from dataclasses import dataclass

from octavo.operator.actions import Certificates, Plan
from octavo.operator.snapshot import Object, Snapshot

UNREADY_S = 15.0  # after news, to the first look at what is not watched (Secrets, warnings) of one that is not ready
LONGER, MOST_UNREADY_S = 1.5, 50.0  # each next one, while there is no news
JITTER = (0.9, 1.1)  # services that were looked at together are not again
WHOLE_S = (500.0, 700.0)  # a plan is made all the same: were one forgotten by a fault of ours, it would heal


@dataclass(slots=True)
class Rest:
    """What the last plan of a service was made of, once it was carried out without an error."""

    resource: Object
    snapshot: Snapshot
    certificates: Certificates | None
    poll_after: float | None  # seconds
    until: float  # when a plan is made though nothing is new
    unready_s: float = UNREADY_S

    @classmethod
    def after(cls, plan: Plan, resource: Object, snapshot: Snapshot, now: float) -> "Rest":
        whole_s = random.uniform(*WHOLE_S)
        changes_s = whole_s if plan.changes_after is None else min(whole_s, plan.changes_after)
        return cls(resource, snapshot, plan.certificates, plan.poll_after, now + changes_s)

    def plan(self, resource: Object, snapshot: Snapshot, now: float) -> Plan | None:
        """What is left of the plan where nothing is new; None: one must be made."""
        if now >= self.until or resource is not self.resource or snapshot != self.snapshot:
            return None
        return Plan(certificates=self.certificates, poll_after=self.poll_after, changes_after=self.until - now)

    def next_unready_s(self) -> float:
        """Seconds until the next look at a service that is not ready."""
        rest_s, self.unready_s = self.unready_s, min(self.unready_s * LONGER, MOST_UNREADY_S)
        return rest_s * random.uniform(*JITTER)
