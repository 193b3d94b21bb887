"""All conditions of a service, by the table in operator/api/schemas/status.py.

`lastTransitionTime` changes only with the status, not with reason and message. `observedGeneration` is the spec's,
except where `is_current` of the module is false: then a condition that is true is so by pods of an earlier generation,
and names that one. So `kubectl wait`, which compares it with metadata.generation, waits for pods of the present spec.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from octavo.operator.api.schemas.status import CONDITIONS
from octavo.operator.groups.groups import timestamp
from octavo.operator.planning.conditions.facts import Facts, Verdict

Json = dict[str, Any]  # Any: Kubernetes JSON


@dataclass(frozen=True, slots=True)
class Condition:
    """A type of condition: functions of its module."""

    verdict: Callable[[Facts], Verdict]
    is_current: Callable[[Facts], bool]


def _condition(kind: str) -> Condition:
    """Of the module with the condition's name in snake case. Raises ImportError."""
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", kind).lower()
    module = import_module(f"octavo.operator.planning.conditions.{name}")
    return Condition(module.verdict, getattr(module, "is_current", lambda _: True))


_CONDITIONS = {kind: _condition(kind) for kind in CONDITIONS}


def conditions(facts: Facts, previous: Mapping[str, Any], generation: int, now: float) -> list[Json]:  # Any: JSON
    """All conditions, in the order of the table. previous: the last status; now: Unix time in seconds."""
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    return [
        _entry(kind, condition.verdict(facts), condition.is_current(facts), old.get(kind), generation, now)
        for kind, condition in _CONDITIONS.items()
    ]


def _entry(kind: str, verdict: Verdict, current: bool, old: Json | None, generation: int, now: float) -> Json:
    holds, reason, message = verdict
    status = "True" if holds else "False"
    if holds and not current:
        earlier = old.get("observedGeneration", generation) if old else generation
        generation = max(0, min(earlier, generation - 1))
    kept = old["lastTransitionTime"] if old and old.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": kept or timestamp(now),
        "reason": reason,
        "message": message,
    }


def had_more_serving(previous: Mapping[str, Any], revision: str, serving: int) -> bool:  # Any: JSON
    """True if more groups served at the last look, or Degraded was true for the same revision, and not only for the
    reason of Reconciled or of RouterReady.

    So Degraded, once true, stays true until all groups serve, even if the cause changes meanwhile.
    """
    entries = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    found = {kind: (entry["status"], entry.get("reason")) for kind, entry in entries.items()}
    status, reason = found.get("Degraded", ("False", None))
    others = {found[kind][1] for kind in ("Reconciled", "RouterReady") if kind in found}
    degraded = status == "True" and reason not in others
    return (previous.get("readyReplicas") or 0) > serving or (degraded and previous.get("revision") == revision)
