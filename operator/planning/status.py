"""Status of a service, and the events of its transitions."""

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.groups import Group, timestamp
from octavo.operator.groups.history import Rollback
from octavo.operator.groups.snapshot import Failure, ModelInfo, Object
from octavo.operator.planning.actions import Event
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.conditions.evaluate import conditions
from octavo.operator.planning.conditions.facts import Facts
from octavo.operator.planning.conditions.group_state import state_of
from octavo.operator.planning.conditions.progressing import COMPLETE

Json = dict[str, Any]  # Any: Kubernetes JSON


def status(service: InferenceService, facts: Facts, observed: Iterable[Group], now: float) -> Json:
    """The whole status of the resource. now: Unix time in seconds."""
    existing = tuple(observed)
    found = conditions(facts, service.status, service.generation, now)
    result: Json = {
        "ready": f"{facts.serving}/{facts.goal.groups}",
        "reason": reason(found),
        "observedGeneration": service.generation,
        "conditions": found,
        "replicas": len(facts.live),
        "readyReplicas": facts.serving,
        "updatedReplicas": sum(group.revision == facts.course.desired for group in facts.live),
        "desiredReplicas": facts.goal.groups,
        "selector": names.leader_selector(service.name),
        "url": url(service),
        "revision": facts.course.desired,
        "groups": [_group(group, facts.cause_of(group.index)) for group in existing],
    }
    if facts.course.rollback:
        result["rollback"] = _rollback(facts.course.rollback)
    if model := _served_model(existing, service.status.get("model")):
        result["model"] = model
    return result


def reason(found: Iterable[Mapping[str, Any]]) -> str:  # Any: JSON
    """Why the service is as it is, of its conditions: the most serious one's reason."""
    entries = {entry["type"]: entry for entry in found}
    for kind, status in (("Degraded", "True"), ("Ready", "False"), ("Progressing", "True")):
        if entries[kind]["status"] == status:
            return str(entries[kind]["reason"])
    return str(entries["Ready"]["reason"])


def url(service: InferenceService) -> str:
    """URL of the service inside the cluster."""
    port = service.spec.router.service.port
    return f"http://{service.name}.{service.namespace}.svc" + ("" if port == 80 else f":{port}")


def _rollback(back: Rollback) -> Json:
    entry = {"revision": back.revision, "reason": back.reason, "message": back.message[:1000]}
    return {**{key: value for key, value in entry.items() if value}, "time": timestamp(back.at_s)}


def _served_model(existing: tuple[Group, ...], last: Json | None) -> Json | None:
    """The model of most serving groups, else the last one, else that of the first group."""
    serving = [group for group in existing if group.serving]
    if not serving and last:
        return last
    uris = [group.model_uri for group in serving or existing]
    if not uris:
        return last
    chosen = max(uris, key=uris.count)  # of equal counts the first
    having = [group for group in serving or existing if group.model_uri == chosen]
    reported = [group.report.model for group in having if group.report and group.report.model]
    known = next((model for model in reported if model.digest), next(iter(reported), None))
    if known is None and last and last.get("uri") == chosen:
        return last
    return {**({"uri": chosen} if chosen else {}), **_model(known)} or last


def _model(info: ModelInfo | None) -> Json:
    if info is None:
        return {}
    fields = {
        "architecture": info.architecture,
        "sizeBytes": info.size_bytes,
        "contextLength": info.context_length,
        "digest": info.digest,
        "note": info.note,
    }
    return {key: value for key, value in fields.items() if value}


def _group(group: Group, cause: Cause | None) -> Json:
    state, progress = state_of(group, cause)
    entry: Json = {"index": group.index, "revision": group.revision, "state": state}
    if progress is not None:
        entry["progress"] = progress
    if group.report:
        chosen = {"collective": group.report.collective, "activations": group.report.activations}
        entry |= {key: value for key, value in chosen.items() if value}
    if group.report and group.report.release:
        entry["release"] = group.report.release
    containers = [
        container for pod in group.pods for container in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    restarts = group.report.restarts if group.report else 0
    entry["restarts"] = restarts + sum(container.get("restartCount", 0) for container in containers)
    if failure := _last_failure(group):
        entry["lastFailure"] = failure
    return entry


def _last_failure(group: Group) -> Json:
    if group.report and group.report.last_failure:
        return _failure(group.report.last_failure)
    for pod in group.pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get(
                "terminated"
            )
            if ended and ended.get("exitCode", 0) != 0:
                return _ended(pod, ended)
    return {}


def _failure(failure: Failure) -> Json:
    return {
        "pod": failure.pod,
        "rank": failure.rank,
        "reason": failure.reason,
        "exitCode": failure.exit_code,
        "message": failure.message[:1000],
        "time": timestamp(failure.time_s),
    }


def _ended(pod: Object, ended: Mapping[str, Any]) -> Json:  # Any: JSON
    entry: Json = {
        "pod": pod["metadata"]["name"],
        "rank": -1,
        "reason": ended.get("reason") or "Error",
        "exitCode": ended["exitCode"],
        "message": str(ended.get("message") or "")[-1000:],
    }
    return {**entry, "time": ended["finishedAt"]} if ended.get("finishedAt") else entry


def events(previous: Mapping[str, Any], present: Json) -> tuple[Event, ...]:  # Any: JSON
    """One event for each condition whose status changed, and for each new reason of Degraded; the same one once."""
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    found = [event for entry in present["conditions"] if (event := _event(old.get(entry["type"]), entry))]
    return tuple(dict.fromkeys(found))


def _event(old: Mapping[str, Any] | None, new: Json) -> Event | None:  # Any: JSON
    """Causes are Warnings: what Progressing stops for is one, unless the rollout is complete."""
    kind, holds = new["type"], new["status"] == "True"
    broken = (kind == "Degraded" and holds) or (kind == "SpecSupported" and not holds)
    if old is None:
        return Event("Warning", new["reason"], new["message"]) if broken else None
    if old["status"] == new["status"]:
        return Event("Warning", new["reason"], new["message"]) if broken and old["reason"] != new["reason"] else None
    if kind == "Degraded":
        return Event("Warning" if holds else "Normal", new["reason"] if holds else "Recovered", new["message"])
    if kind == "Ready":
        return Event(
            "Normal" if holds else "Warning", "Ready" if holds else "NotReady", f"{new['reason']}: {new['message']}"
        )
    if kind in ("Reconciled", "SpecSupported"):
        return Event("Normal" if holds else "Warning", new["reason"], new["message"])
    if kind == "Progressing":
        is_cause = not holds and new["reason"] != COMPLETE
        return Event("Warning" if is_cause else "Normal", new["reason"], new["message"])
    return None
