"""All conditions of a service, by the table in operator/api/status_schema.py.

`lastTransitionTime` changes only with the status, not with reason and message.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from octavo.operator.api.status_schema import CONDITIONS
from octavo.operator.groups.groups import timestamp
from octavo.operator.planning.conditions.facts import Facts, Verdict

Json = dict[str, Any]  # Any: Kubernetes JSON


def _verdict(kind: str) -> Callable[[Facts], Verdict]:
    """`verdict` of the module with the condition's name in snake case. Raises ImportError."""
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", kind).lower()
    found: Callable[[Facts], Verdict] = import_module(f"octavo.operator.planning.conditions.{name}").verdict
    return found


_VERDICTS = {kind: _verdict(kind) for kind in CONDITIONS}


def conditions(facts: Facts, previous: Mapping[str, Any], generation: int, now: float) -> list[Json]:  # Any: JSON
    """All conditions, in the order of the table. previous: the last status; now: Unix time in seconds."""
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    return [_condition(kind, verdict(facts), old.get(kind), generation, now) for kind, verdict in _VERDICTS.items()]


def _condition(kind: str, verdict: Verdict, old: Json | None, generation: int, now: float) -> Json:
    holds, reason, message = verdict
    status = "True" if holds else "False"
    kept = old["lastTransitionTime"] if old and old.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": kept or timestamp(now),
        "reason": reason,
        "message": message,
    }


def has_served_before(previous: Mapping[str, Any], revision: str) -> bool:  # Any: JSON
    """True if a group served at the last observation, or Degraded was true for the same revision.

    So Degraded, once true, stays true until all groups serve, even if the cause changes meanwhile.
    """
    degraded = any(
        entry["type"] == "Degraded" and entry["status"] == "True" for entry in previous.get("conditions") or ()
    )
    return bool(previous.get("readyReplicas") or (degraded and previous.get("revision") == revision))
