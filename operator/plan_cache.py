"""Plan cache: decides whether a reconcile needs a new plan, and when the next reconcile without a change is due.

    change ──> plan, apply ──> cached plan ──┬─ no change: check only the Secrets ──> cached plan, for longer each time
      ^                                      └─ a change, or `changes_after` has passed ──┐
      └───────────────────────────────────────────────────────────────────────────────────┘

A plan depends on the resource, the snapshot and the time. If the first two are unchanged and `changes_after` has not
passed, a new plan would be the same and already applied. The caches replace an object when it changes, so that two
snapshots without a change hold the same objects, and the comparison takes microseconds.
"""

import random
from dataclasses import dataclass

from octavo.operator.groups.snapshot import Object, Snapshot
from octavo.operator.planning.actions import Certificates, Plan

UNREADY_S = 15.0  # from a change to the first check of Secrets and warnings of a service that is not ready
BACKOFF_FACTOR, MAX_UNREADY_S = 1.5, 50.0  # of the following checks without a change
JITTER = (0.9, 1.1)  # so that services that were checked together are not checked together again
REPLAN_S = (500.0, 700.0)  # until a new plan without a change, which would repair a missed one


@dataclass(slots=True)
class CachedPlan:
    """Inputs of the last plan of a service that was executed without an error. until: of the monotonic clock."""

    resource: Object
    snapshot: Snapshot
    certificates: Certificates | None
    poll_after: float | None  # seconds
    until: float  # time of the next plan without a change
    surges: bool = False  # spec.disruption.onDrain of the resource is surge
    unready_s: float = UNREADY_S

    @classmethod
    def after(cls, plan: Plan, resource: Object, snapshot: Snapshot, now: float, surges: bool = False) -> "CachedPlan":
        replan_s = random.uniform(*REPLAN_S)
        changes_s = replan_s if plan.changes_after is None else min(replan_s, plan.changes_after)
        return cls(resource, snapshot, plan.certificates, plan.poll_after, now + changes_s, surges)

    def plan(self, resource: Object, snapshot: Snapshot, now: float) -> Plan | None:
        """The rest of the cached plan if nothing has changed; None: a new plan is needed."""
        if now >= self.until or resource is not self.resource or snapshot != self.snapshot:
            return None
        return Plan(certificates=self.certificates, poll_after=self.poll_after, changes_after=self.until - now)

    def next_unready_s(self) -> float:
        """Seconds until the next check of a service that is not ready; longer at each call."""
        wait_s, self.unready_s = self.unready_s, min(self.unready_s * BACKOFF_FACTOR, MAX_UNREADY_S)
        return wait_s * random.uniform(*JITTER)
