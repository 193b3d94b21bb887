"""What keeps objects from being as desired: writes that the API server refused, kinds that the operator may not read,
fields that others change back, and names that belong to other owners."""

from collections.abc import Iterable

from octavo.operator.groups.snapshot import FieldConflict, Refusal, Snapshot
from octavo.operator.planning.cause import Cause

# Requests are answered without objects of these kinds.
BESIDE_SERVING = frozenset({"PodDisruptionBudget", "NetworkPolicy"})
# A service is not planned while one of these may not be read: groups that exist might be created or deleted again.
NEEDED_TO_PLAN = frozenset({"StatefulSet", "Deployment", "Pod"})


def refused(refusals: Iterable[Refusal], for_serving: bool = False) -> Cause | None:
    """Cause of the refused writes, first of objects that serving needs; None if there are none. for_serving: no other
    objects count."""
    found = sorted(refusals, key=lambda refusal: (refusal.kind in BESIDE_SERVING, refusal.action))
    if for_serving:
        found = [refusal for refusal in found if refusal.kind not in BESIDE_SERVING]
    if not found:
        return None
    first = found[0]
    reason = "QuotaExceeded" if "exceeded quota" in first.message else "WriteRefused"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Cause(reason, f"{first.action}: {first.message}{more}")


def unreadable(snapshot: Snapshot) -> Cause | None:
    """Cause if a kind of object may not be read; None if all may."""
    if not snapshot.unreadable:
        return None
    kinds = ", ".join(kind for kind, _ in snapshot.unreadable)
    return Cause("KindUnreadable", f"the operator may not list and watch {kinds}: {snapshot.unreadable[0][1]}")


def field_conflict(snapshot: Snapshot) -> Cause | None:
    """Cause if a field is changed each time after the operator has applied it; None if there is none."""
    found = sorted(snapshot.conflicts, key=lambda conflict: (conflict.kind, conflict.name))
    if not found:
        return None
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Cause(
        "FieldConflict",
        f"{found[0].kind} {found[0].name}: {_changed(found[0])}{more}. The operator applies it again, after growing "
        "delays; stop the other from changing it, or set what it wants in the spec",
    )


def _changed(conflict: FieldConflict) -> str:
    if not conflict.field:
        return "it is deleted each time after the operator has applied it"
    if conflict.manager:
        return f'"{conflict.manager}" changes {conflict.field} each time after the operator has applied it'
    if conflict.is_admission:
        return f"an admission webhook changes {conflict.field} as it is written"
    return f"another client changes {conflict.field} each time after the operator has applied it"


def name_conflict(snapshot: Snapshot, for_serving: bool) -> Cause | None:
    """Cause if an object has the name of one of ours and another owner. A StatefulSet costs only its index.

    for_serving: of objects that serving needs, or else of the others.
    """
    names = sorted((kind, name) for kind, name in snapshot.foreign if kind != "StatefulSet")
    found = [(kind, name) for kind, name in names if (kind not in BESIDE_SERVING) is for_serving]
    if not found:
        return None
    kind, name = found[0]
    return Cause(
        "NameConflict",
        f"{kind} {name} exists and does not belong to this service; it is left unchanged. "
        "Delete it, or give the service another name",
    )
