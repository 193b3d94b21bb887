"""plan(service, snapshot, options, now) -> Plan: everything the operator does to one service, as data with reasons.

Pure: the same input gives the same output; the clock is an argument. It reads as the walk goes: which groups there are,
what stands in the way, what the next step of the rollout is, what objects that makes, what the status says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from octavo.operator import gangs, names
from octavo.operator.actions import Apply, Certificates, Delete, Event, Leaf, Plan
from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.causes import Cause, group_cause, is_worker, router_cause
from octavo.operator.conditions import Facts, has_begun
from octavo.operator.groups import Group, groups, timestamp
from octavo.operator.options import Options
from octavo.operator.pods import next_check, pods_to_delete
from octavo.operator.revision import kept_template, router_revision, worker_revision
from octavo.operator.rollout import UNSCHEDULABLE_S, Goal, Step, step, surge_waits_since
from octavo.operator.snapshot import Object, Snapshot
from octavo.operator.specs import access, common, policies, router, services, worker
from octavo.operator.status import events, status

__all__ = ["Apply", "Certificates", "Delete", "Event", "Leaf", "Plan", "plan", "plan_invalid"]

POLL_S = 2.0  # how often a group that runs and does not serve is asked for its progress


def plan(service: InferenceService, snapshot: Snapshot, options: Options, now: float) -> Plan:
    """What to do for one service. Raises nothing: what cannot be done is said in the status."""
    observed = groups(service.name, snapshot)
    goal = _goal(service)
    blocked = _blocked(service, snapshot, options)
    allowed = Step((), tuple(group for group in observed if not group.leaving), ())
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
    """For a resource that `parse` refuses: say so in its status, touch nothing that runs."""
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
    wished = 0 if service.spec.paused else service.spec.replicas
    return Goal(wished, worker_revision(service), rollout.max_surge, rollout.max_unavailable)


def _blocked(service: InferenceService, snapshot: Snapshot, options: Options) -> Cause | None:
    taken = sorted((kind, name) for kind, name in snapshot.foreign if kind != "StatefulSet")
    if taken:
        kind, name = taken[0]
        return Cause(
            "NameConflict",
            f"{kind} {name} exists and does not belong to this service; it is left alone. "
            "Delete it, or give the service another name",
        )
    if service.spec.model.uri.startswith("file://") and not options.allow_host_path:
        return Cause(
            "HostPathNotAllowed",
            f"spec.model.uri {service.spec.model.uri} is a folder of a node; "
            "start the operator with --allow-host-path, or use pvc://",
        )
    return None


def _foreign_indexes(service: InferenceService, snapshot: Snapshot) -> frozenset[int]:
    """Indexes whose StatefulSet's name is another's: groups simply take the next."""
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
    surge_waits: bool,
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
        leaving=len(observed) - len(allowed.keep),
        blocked=blocked,
        causes={index: cause for index, cause in found.items() if cause},
        router_wished=service.spec.router.replicas,
        router_ready=ready,
        router_cause=router_cause(snapshot.router, routers, snapshot.warnings),
        surge_waits=surge_waits,
        begun=has_begun(service.status, goal.revision),
    )


def _applies(
    service: InferenceService, snapshot: Snapshot, options: Options, goal: Goal, allowed: Step
) -> Iterator[Apply]:
    """All wished objects, what others need first. A name that is another's is left out."""
    for item in _every(service, snapshot, options, goal, allowed):
        if (item.object["kind"], item.object["metadata"]["name"]) not in snapshot.foreign:
            yield item


def _every(
    service: InferenceService, snapshot: Snapshot, options: Options, goal: Goal, allowed: Step
) -> Iterator[Apply]:
    yield Apply(access.service_account(service), "the routers' account")
    yield Apply(access.role(service), "routers watch the EndpointSlices of their namespace")
    yield Apply(access.role_binding(service), "gives the routers their role")
    yield Apply(services.ranks(service), "names all worker pods, ready or not")
    yield Apply(services.leaders(service), "lists the groups that serve, for the routers")
    yield Apply(services.clients(service), "what clients connect to")
    yield Apply(policies.worker_policy(service, options), "who may dial the workers")
    yield Apply(policies.router_policy(service), "who may dial the routers")
    yield Apply(policies.worker_budget(service), "evictions take one worker at a time")
    yield Apply(policies.router_budget(service), "evictions take one router at a time")
    yield Apply(_router(service, snapshot, options), f"routers: {service.spec.router.replicas} wished")
    yield from _group_sets(service, options, goal, allowed)


def _router(service: InferenceService, snapshot: Snapshot, options: Options) -> Object:
    revision = router_revision(service)
    kept = kept_template(snapshot.router, revision) if snapshot.router else None
    return router.deployment(service, revision, kept or router.pod_template(service, revision, options))


def _group_sets(service: InferenceService, options: Options, goal: Goal, allowed: Step) -> Iterator[Apply]:
    """Groups that stay keep their template; new ones of their revision take it over: a revision is one thing."""
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
        wished = "1 group" if goal.groups == 1 else f"{goal.groups} groups"
        pods = f"; it has {group.size} pods" if group.size > 1 else ""
        reason = f"{wished} of revision {goal.revision} wished, {index} is the next free index{pods}"
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
    made = [Event("Normal", "GroupCreated", f"{names.group(service.name, index)} is made") for index in allowed.create]
    gone = [
        Event("Normal", "GroupDeleted", f"{names.group(service.name, group.index)} is drained and deleted: {reason}")
        for group, reason in allowed.delete
    ]
    return (*made, *gone, *_backoff_events(service, allowed))


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
    """All that `plan` does with `now` but to write it down stands here: in between nobody looks."""
    times = [next_check(observed, snapshot.lost_nodes, now), gangs.next_step(allowed.keep, now)]
    if waits is not None and now < waits + UNSCHEDULABLE_S:
        times.append(waits + UNSCHEDULABLE_S - now + 0.1)
    return min((time for time in times if time is not None), default=None)


def _is_polled(group: Group) -> bool:
    """A group on its way to serve says how far it is; one that is not clear is soon."""
    running = any((pod.get("status") or {}).get("phase") == "Running" for pod in group.pods)
    return group.unsettled or (not group.leaving and not group.serving and running)


def _shown(item: Object) -> str:
    return f"{item['kind']} {item['metadata']['name']}"
