"""Plans that leave the objects as they are, and say why in the status: all but the certificates, and a budget that lets
no group be evicted, since none is replaced before its node is drained."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.groups import deleting, is_owned, timestamp
from octavo.operator.groups.snapshot import Object, Snapshot
from octavo.operator.planning.actions import Apply, Certificates, Plan
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.status import events
from octavo.operator.specs import policies

Json = Mapping[str, Any]  # Any: Kubernetes JSON
_STALLED = {
    "Progressing": "False",
    "UpToDate": "False",
    "Degraded": "True",
    "Reconciled": "False",
    "Reconciling": "False",
    "Stalled": "True",
}


def plan_invalid(resource: Json, error: Exception, snapshot: Snapshot, now: float) -> Plan:
    """The plan for a resource that `parse_stored` refuses. now: Unix time in seconds.

    Certificates of a service that has been planned before are renewed: its pods go on.
    """
    cause = Cause("InvalidSpec", str(error))
    present = _status(resource, {"Ready": "False", **_STALLED}, cause, now)
    meta, before = resource["metadata"], resource.get("status") or {}
    return Plan(
        apply=tuple(_unblocked(meta["name"], meta["uid"], snapshot.children)),
        certificates=Certificates.of(meta["namespace"], meta["name"], meta["uid"]) if "revision" in before else None,
        status=present,
        events=events(before, present),
    )


def plan_unreadable(service: InferenceService, cause: Cause, snapshot: Snapshot, now: float) -> Plan:
    """The plan for a service whose groups or routers cannot be read: whether it serves is not known."""
    resource = {"metadata": {"generation": service.generation}, "status": service.status}
    unknown = dict.fromkeys(("Ready", "ModelLoaded", "RouterReady"), "Unknown")
    present = _status(resource, {**unknown, **_STALLED}, cause, now)
    return Plan(
        apply=tuple(_unblocked(service.name, service.uid, snapshot.children)),
        certificates=Certificates.of(service.namespace, service.name, service.uid),
        status=present,
        events=events(service.status, present),
    )


def _unblocked(service: str, uid: str, children: Iterable[Object]) -> Iterator[Apply]:
    """The workers' budget, if the live one lets no group that serves be evicted."""
    for item in children:
        is_budget = item["kind"] == "PodDisruptionBudget" and item["metadata"]["name"] == names.workers(service)
        if not is_budget or deleting(item) or not is_owned(item, uid):
            continue
        if (item.get("spec") or {}).get("maxUnavailable") == 0:
            yield Apply(
                policies.unblocked(item, service, uid),
                "nothing is planned, so that no drain may wait for another group",
            )


def _status(resource: Json, judged: Mapping[str, str], cause: Cause, now: float) -> dict[str, Any]:  # Any: JSON
    """The last status with these conditions, all for the same cause."""
    previous = resource.get("status") or {}
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    generation = resource["metadata"].get("generation", 0)
    said = {"reason": cause.reason, "message": cause.message, "observedGeneration": generation}
    entries = []
    for kind, value in judged.items():
        same = kind in old and old[kind]["status"] == value
        since = old[kind]["lastTransitionTime"] if same else timestamp(now)
        entries.append({"type": kind, "status": value, "lastTransitionTime": since, **said})
    kept = [entry for kind, entry in old.items() if kind not in judged]
    return {
        **previous,
        "reason": cause.reason,
        "observedGeneration": generation,
        "conditions": [*entries, *kept],
    }
