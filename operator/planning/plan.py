"""plan(service, snapshot, options, now) -> Plan: everything the operator does to one service, as data with reasons.

Pure: the same input gives the same output; the clock is an argument. The order is: observed groups, blocking causes,
next step of the rollout, desired objects, status.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import gang_backoff as gangs
from octavo.operator.groups import names
from octavo.operator.groups.groups import Group, groups, timestamp
from octavo.operator.groups.options import Options
from octavo.operator.groups.revision import kept_template, router_revision, worker_revision
from octavo.operator.groups.rollout import UNSCHEDULABLE_S, Goal, Step, step, surge_waits_since
from octavo.operator.groups.snapshot import Object, Snapshot
from octavo.operator.planning.actions import Apply, Certificates, Delete, Event, Leaf, Plan
from octavo.operator.planning.conditions.evaluate import has_served_before
from octavo.operator.planning.conditions.facts import Facts
from octavo.operator.planning.diagnosis import Cause, group_cause, is_worker, router_cause
from octavo.operator.planning.pod_repair import next_check, pods_to_delete
from octavo.operator.planning.status import events, status
from octavo.operator.specs import access, common, policies, router, services, worker
from octavo.shared.model_uri import parse

__all__ = ["Apply", "Certificates", "Delete", "Event", "Leaf", "Plan", "plan", "plan_invalid"]

POLL_S = 2.0  # interval of progress polls of a group that runs and does not serve


def plan(service: InferenceService, snapshot: Snapshot, options: Options, now: float) -> Plan:
    """The plan for one service. now: Unix time in seconds. Raises nothing: the status reports what is not possible."""
    observed = groups(service.name, snapshot)
    goal = _goal(service)
    blocked = _blocked(service, snapshot, options)
    allowed = Step((), tuple(group for group in observed if not group.terminating), ())
    if blocked is None or blocked.reason == "NameConflict":
        allowed = step(goal, observed, _foreign_indexes(service, snapshot))
    allowed = replace(allowed, gang_backoffs=gangs.backoffs(allowed.keep, now))
    waits = surge_waits_since(goal, observed)
    facts = _facts(
        service, snapshot, goal, observed, allowed, blocked, waits is not None and now - waits >= UNSCHEDULABLE_S
    )
    present = status(service, facts, observed, now)
    applies = tuple(_applies(service, snapshot, options, goal, allowed))
    deletes = tuple(_delete(group, reason) for group, reason in allowed.delete)
    pods = pods_to_delete(observed, snapshot.lost_nodes, now)
    return Plan(
        apply=applies,
        delete=deletes,
        delete_pods=pods,
        certificates=_certificates(service),
        status=present,
        events=(*_step_events(service, allowed), *events(service.status, present)),
        reasons=tuple(
            [f"apply {_shown(item.object)}: {item.reason}" for item in applies]
            + [f"delete {item.kind} {item.name}: {item.reason}" for item in (*deletes, *pods)]
            + ([f"blocked: {blocked.reason}: {blocked.message}"] if blocked else [])
        ),
        poll_after=POLL_S if any(map(_is_polled, observed)) else None,
        changes_after=_changes_after(observed, allowed, snapshot, waits, now),
    )


def plan_invalid(resource: Object, error: Exception, now: float) -> Plan:
    """The plan for a resource that `parse` refuses: report the error in the status, change no other object."""
    previous: Mapping[str, Any] = resource.get("status") or {}  # Any: JSON
    old = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    generation = resource["metadata"].get("generation", 0)
    said = {"reason": "InvalidSpec", "message": str(error), "observedGeneration": generation}
    judged = {"Ready": "False", "Progressing": "False", "Degraded": "True"}
    entries = []
    for kind, value in judged.items():
        same = kind in old and old[kind]["status"] == value
        since = old[kind]["lastTransitionTime"] if same else timestamp(now)
        entries.append({"type": kind, "status": value, "lastTransitionTime": since, **said})
    kept = [entry for kind, entry in old.items() if kind not in judged]
    present = {**previous, "observedGeneration": generation, "conditions": [*entries, *kept]}
    return Plan(status=present, events=events(previous, present), reasons=(f"invalid: {error}",))


def _goal(service: InferenceService) -> Goal:
    rollout = service.spec.rollout
    desired = 0 if service.spec.paused else service.spec.replicas
    return Goal(desired, worker_revision(service), rollout.max_surge, rollout.max_unavailable)


def _blocked(service: InferenceService, snapshot: Snapshot, options: Options) -> Cause | None:
    conflicts = sorted((kind, name) for kind, name in snapshot.foreign if kind != "StatefulSet")
    if conflicts:
        kind, name = conflicts[0]
        return Cause(
            "NameConflict",
            f"{kind} {name} exists and does not belong to this service; it is left unchanged. "
            "Delete it, or give the service another name",
        )
    if parse(service.spec.model.uri).scheme == "file" and not options.allow_host_path:
        return Cause(
            "HostPathNotAllowed",
            f"spec.model.uri {service.spec.model.uri} is a folder of a node; "
            "start the operator with --allow-host-path, or use pvc://",
        )
    return None


def _foreign_indexes(service: InferenceService, snapshot: Snapshot) -> frozenset[int]:
    """Indexes whose StatefulSet's name belongs to another owner: new groups skip them."""
    prefix = f"{service.name}-"
    tails = (
        name.removeprefix(prefix)
        for kind, name in snapshot.foreign
        if kind == "StatefulSet" and name.startswith(prefix)
    )
    return frozenset(int(tail) for tail in tails if tail.isdecimal())


def _facts(
    service: InferenceService,
    snapshot: Snapshot,
    goal: Goal,
    observed: tuple[Group, ...],
    allowed: Step,
    blocked: Cause | None,
    surge_unschedulable: bool,
) -> Facts:
    found = {
        group.index: group_cause(group, names.group(service.name, group.index), snapshot.warnings)
        for group in allowed.keep
    }
    deployment = snapshot.router or {}
    ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
    routers = [pod for pod in snapshot.pods if not is_worker(pod)]
    return Facts(
        service=service.name,
        goal=goal,
        paused=service.spec.paused,
        live=allowed.keep,
        terminating=len(observed) - len(allowed.keep),
        blocked=blocked,
        causes={index: cause for index, cause in found.items() if cause},
        routers_desired=service.spec.router.replicas,
        routers_ready=ready,
        router_cause=router_cause(snapshot.router, routers, snapshot.warnings),
        surge_unschedulable=surge_unschedulable,
        has_served=has_served_before(service.status, goal.revision),
    )


def _applies(
    service: InferenceService, snapshot: Snapshot, options: Options, goal: Goal, allowed: Step
) -> Iterator[Apply]:
    """All desired objects in the order of their dependencies, without names that belong to another owner."""
    for item in _every(service, snapshot, options, goal, allowed):
        if (item.object["kind"], item.object["metadata"]["name"]) not in snapshot.foreign:
            yield item


def _every(
    service: InferenceService, snapshot: Snapshot, options: Options, goal: Goal, allowed: Step
) -> Iterator[Apply]:
    yield Apply(access.service_account(service), "account of the routers")
    yield Apply(access.role(service), "routers watch the EndpointSlices of their namespace")
    yield Apply(access.role_binding(service), "grants the routers their role")
    yield Apply(services.ranks(service), "DNS names of all worker pods, ready or not")
    yield Apply(services.leaders(service), "endpoints of the groups that serve, for the routers")
    yield Apply(services.clients(service), "address for clients")
    yield Apply(policies.worker_policy(service, options), "allowed connections to the workers")
    yield Apply(policies.router_policy(service), "allowed connections to the routers")
    yield Apply(policies.worker_budget(service), "limits evictions to one worker at a time")
    yield Apply(policies.router_budget(service), "limits evictions to one router at a time")
    yield Apply(_router(service, snapshot, options), f"{service.spec.router.replicas} routers desired")
    yield from _group_sets(service, options, goal, allowed)


def _router(service: InferenceService, snapshot: Snapshot, options: Options) -> Object:
    revision = router_revision(service)
    kept = kept_template(snapshot.router, revision) if snapshot.router else None
    return router.deployment(service, revision, kept or router.pod_template(service, revision, options))


def _group_sets(service: InferenceService, options: Options, goal: Goal, allowed: Step) -> Iterator[Apply]:
    """Existing groups keep their template, and new groups of the same revision get it too."""
    present: Mapping[str, Any] | None = None  # Any: JSON
    for group in allowed.keep:
        if group.template is None:
            continue
        present = present or (group.template if group.revision == goal.revision else None)
        backoff = allowed.gang_backoffs.get(group.index)
        state = "is scaled to zero for its back-off" if backoff and backoff.scaled_to_zero else "keeps its template"
        kept = worker.statefulset(service, group, group.revision, backoff)
        yield Apply(kept, f"group {group.index} {state}")
    if not allowed.create:
        return
    template = present or worker.pod_template(service, goal.revision, options)
    for index in allowed.create:
        group = Group(index, None, (), None, template)
        desired = "1 group" if goal.groups == 1 else f"{goal.groups} groups"
        pods = f"; it has {group.size} pods" if group.size > 1 else ""
        reason = f"{desired} of revision {goal.revision} desired, {index} is the next free index{pods}"
        yield Apply(worker.statefulset(service, group, goal.revision), reason)


def _delete(group: Group, reason: str) -> Delete:
    assert group.live is not None, "only groups that exist are deleted"
    metadata = group.live["metadata"]
    return Delete("apps/v1", "StatefulSet", metadata["name"], metadata["uid"], reason)


def _certificates(service: InferenceService) -> Certificates:
    ca, worker_tls, router_tls = names.secrets(service.name)
    metadata = common.metadata(service, "")
    return Certificates(
        service_uid=service.uid,
        ca_secret=ca,
        leaves=(
            Leaf(worker_tls, names.dns_name("worker", service.uid)),
            Leaf(router_tls, names.dns_name("router", service.uid)),
        ),
        metadata={key: metadata[key] for key in ("namespace", "labels", "ownerReferences")},
    )


def _step_events(service: InferenceService, allowed: Step) -> tuple[Event, ...]:
    created = [
        Event("Normal", "GroupCreated", f"created {names.group(service.name, index)}") for index in allowed.create
    ]
    deleted = [
        Event("Normal", "GroupDeleted", f"draining and deleting {names.group(service.name, group.index)}: {reason}")
        for group, reason in allowed.delete
    ]
    return (*created, *deleted, *_backoff_events(service, allowed))


def _backoff_events(service: InferenceService, allowed: Step) -> Iterator[Event]:
    for group in allowed.keep:
        new = allowed.gang_backoffs.get(group.index)
        if new and (group.gang_backoff is None or group.gang_backoff.attempts != new.attempts):
            name, again = names.group(service.name, group.index), timestamp(new.until_s)
            message = f"{name}: some of its {group.size} pods are unschedulable; scaled to zero until {again}"
            yield Event("Warning", "GangBackoff", message)


def _changes_after(
    observed: tuple[Group, ...], allowed: Step, snapshot: Snapshot, waits: float | None, now: float
) -> float | None:
    """Seconds until `plan` returns another result for the same input; None: never. Covers every use of `now`."""
    times = [next_check(observed, snapshot.lost_nodes, now), gangs.next_step(allowed.keep, now)]
    if waits is not None and now < waits + UNSCHEDULABLE_S:
        times.append(waits + UNSCHEDULABLE_S - now + 0.1)
    return min((time for time in times if time is not None), default=None)


def _is_polled(group: Group) -> bool:
    """True for groups whose progress is polled: running and not serving, or without a known owner."""
    running = any((pod.get("status") or {}).get("phase") == "Running" for pod in group.pods)
    return group.owner_unknown or (not group.terminating and not group.serving and running)


def _shown(item: Object) -> str:
    return f"{item['kind']} {item['metadata']['name']}"
