"""plan(service, snapshot, options, now) -> Plan: everything the operator does to one service, as data with reasons.

Pure: the same input gives the same output; the clock is an argument. The order is: observed groups, blocking causes,
course of the rollout, its next step, desired objects, status.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import gang_backoff as gangs
from octavo.operator.groups import names
from octavo.operator.groups.drains import is_overdue, next_overdue
from octavo.operator.groups.groups import Group, deleting, groups, is_owned, owned_by, unix
from octavo.operator.groups.history import kept_routers, kept_workers
from octavo.operator.groups.options import Options
from octavo.operator.groups.revision import router_revision
from octavo.operator.groups.rollout import Goal, Step, next_down, step
from octavo.operator.groups.snapshot import Object, Snapshot
from octavo.operator.groups.unknown_fields import with_hashed_fields
from octavo.operator.planning import hindrances
from octavo.operator.planning.actions import Apply, Certificates, Delete, Event, Plan
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.conditions import progressing
from octavo.operator.planning.conditions.facts import Facts
from octavo.operator.planning.diagnosis import ended, is_worker
from octavo.operator.planning.goal import course_of, goal_of
from octavo.operator.planning.observed_facts import group_causes, observed_facts
from octavo.operator.planning.pod_repair import PodJudge
from octavo.operator.planning.revisions import Revisions
from octavo.operator.planning.routers.keys import POLL_S as KEYS_POLL_S
from octavo.operator.planning.routers.keys import has_keys, key_state
from octavo.operator.planning.status import events, status
from octavo.operator.planning.unplanned import plan_unreadable
from octavo.operator.specs import access, network_policies, policies, services
from octavo.shared.model_uri import parse

__all__ = ["Apply", "Certificates", "Delete", "Event", "Plan", "plan"]

POLL_S = 2.0  # interval of progress polls of a group that runs and does not serve
UNREADY_ROUTER_POLL_S = 10.0  # of routers that are not ready, while a group serves
ROUTER_POLL_S = 1.0  # of routers that reach no group, while one serves


def plan(service: InferenceService, snapshot: Snapshot, options: Options, now: float) -> Plan:
    """The plan for one service. now: Unix time in seconds. Raises nothing: the status reports what is not possible."""
    if any(kind in hindrances.NEEDED_TO_PLAN for kind, _ in snapshot.unreadable):
        cause = hindrances.unreadable(snapshot)
        assert cause is not None, "a kind is unreadable"
        return plan_unreadable(service, cause, snapshot, now)
    kept, routers = (found(service.name, snapshot.revisions) for found in (kept_workers, kept_routers))
    service = with_hashed_fields(service, kept, routers)
    templates = {revision: item.template for revision, item in kept.items() if item.template is not None}
    observed = groups(service.name, snapshot, templates)
    blocked = _blocked(service, snapshot, options)
    is_stopped = blocked is not None and blocked.reason != "NameConflict"
    live = tuple(group for group in observed if not group.terminating)
    causes = group_causes(service, snapshot, live)
    way = course_of(service, options, kept, live, causes, is_stopped, now)
    goal = goal_of(service, options, kept, way)
    allowed = Step((), live, ()) if is_stopped else step(goal, observed, now, _foreign_indexes(service, snapshot))
    backoff_after_s = _gang_backoff_after_s(service, snapshot)
    allowed = replace(allowed, gang_backoffs=gangs.backoffs(allowed.keep, backoff_after_s, now))
    keys = key_state(service, snapshot, now)
    facts = observed_facts(service, snapshot, goal, way, observed, allowed, blocked, causes, keys, now)
    present = status(service, facts, observed, now)
    revisions = Revisions(service, options, kept, routers, way, is_stopped, _new_account(service, snapshot), keys)
    applies = tuple(_applies(service, snapshot, options, goal, observed, allowed, revisions, now))
    deletes = (
        *(_delete(group, reason) for group, reason in allowed.delete),
        *revisions.deletes(live),
        *_unwanted(service, snapshot),
    )
    judge = PodJudge(snapshot.lost_nodes, service.spec.disruption)
    pods = judge.pods_to_delete(observed, now)
    return Plan(
        apply=applies,
        delete=deletes,
        delete_pods=pods,
        certificates=Certificates.of(service.namespace, service.name, service.uid),
        status=present,
        events=tuple(
            dict.fromkeys(
                (
                    *judge.events(observed, now),
                    *_nodes_unreadable(service, snapshot),
                    *_course_events(service, facts),
                    *events(service.status, present),
                )
            )
        ),
        poll_after=_poll_after(observed, snapshot, facts),
        changes_after=_changes_after(service, snapshot, observed, allowed, facts, now),
    )


def _gang_backoff_after_s(service: InferenceService, snapshot: Snapshot) -> float:
    """Seconds until a partially scheduled group backs off; inf: never. A back-off would take nodes away from a group
    for which an autoscaler adds them one by one, and make them idle, so that it removes them again."""
    desired = service.spec.scheduling.backoff_after_s
    if desired is not None:
        return desired
    return math.inf if snapshot.autoscaled else gangs.BACKOFF_AFTER_S


def _unwanted(service: InferenceService, snapshot: Snapshot) -> Iterator[Delete]:
    """The service's own NetworkPolicies where spec.networkPolicy.mode is none."""
    if service.spec.network_policy.managed:
        return
    for item in snapshot.children:
        meta = item["metadata"]
        ours = meta["name"] in (names.workers(service.name), names.router(service.name))
        if item["kind"] == "NetworkPolicy" and ours and not deleting(item) and is_owned(item, service.uid):
            yield Delete(item["apiVersion"], item["kind"], meta["name"], meta["uid"], "spec.networkPolicy.mode is none")


def _blocked(service: InferenceService, snapshot: Snapshot, options: Options) -> Cause | None:
    if conflict := hindrances.name_conflict(snapshot, for_serving=True):
        return conflict
    return _not_allowed(service, options)


def _not_allowed(service: InferenceService, options: Options) -> Cause | None:
    """What the operator's allow-lists forbid."""
    uri, image = parse(service.spec.model.uri), service.spec.image
    if uri.scheme == "file" and not options.host_path_allowed(str(uri.path)):
        allowed = ", ".join(options.host_path_allow) or "no folder"
        return Cause(
            "HostPathNotAllowed",
            f"spec.model.uri {service.spec.model.uri} is a folder of a node, and the operator's --allow-host-path "
            f"allows {allowed}; add the folder to hostPathAllow of the chart, or use pvc://",
        )
    if image is not None and not options.image_allowed(image):
        return Cause(
            "ImageNotAllowed",
            f"spec.image {image} is not of {', '.join(options.image_allow)}, which the operator's --allow-image "
            "allows; use such an image, or add its repository to imageAllow of the chart",
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


def _applies(
    service: InferenceService,
    snapshot: Snapshot,
    options: Options,
    goal: Goal,
    observed: tuple[Group, ...],
    allowed: Step,
    revisions: Revisions,
    now: float,
) -> Iterator[Apply]:
    """All desired objects in the order of their dependencies, without names that belong to another owner."""
    budget = policies.worker_budget(
        service, _uncounted(observed, allowed), _evictions(service, snapshot, allowed, revisions.is_stopped, now)
    )
    left = snapshot.foreign | _left_as_they_are(service, snapshot)
    for item in (*_every(service, options, budget), *revisions.router(now), *revisions.groups(goal, allowed, now)):
        if (item.object["kind"], item.object["metadata"]["name"]) not in left:
            yield item


def _left_as_they_are(service: InferenceService, snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """The service's own objects that decide which clients may connect, where the spec has fields on them that this
    release does not know: without these they might admit more."""
    exposing: list[tuple[str, str]] = []
    router = ("NetworkPolicy", names.router(service.name))
    if service.has_unknown("spec", "networkPolicy"):
        exposing += [("NetworkPolicy", names.workers(service.name)), router]
    if service.has_unknown("spec", "router", "service"):
        exposing += [("Service", service.name), router]
    live = {(item["kind"], item["metadata"]["name"]) for item in snapshot.children if is_owned(item, service.uid)}
    return frozenset(exposing) & live


def _every(service: InferenceService, options: Options, worker_budget: Object) -> Iterator[Apply]:
    """The objects that have no pod template."""
    yield Apply(access.service_account(service), "account of the routers")
    yield Apply(access.role(service), "routers watch the EndpointSlices of their namespace")
    yield Apply(access.role_binding(service), "grants the routers their role")
    yield Apply(services.ranks(service), "DNS names of all worker pods, ready or not")
    yield Apply(services.leaders(service), "endpoints of the groups that serve, for the routers")
    yield Apply(services.clients(service), "address for clients")
    if service.spec.network_policy.managed:
        yield Apply(network_policies.worker_policy(service, options), "allowed connections of the workers")
        yield Apply(network_policies.router_policy(service, options), "allowed connections of the routers")
    yield Apply(worker_budget, "limits evictions of workers")
    yield Apply(policies.router_budget(service), "limits evictions to one router at a time")


def _new_account(service: InferenceService, snapshot: Snapshot) -> str | None:
    """Uid of the routers' ServiceAccount if a router pod is older than it, or was replaced for it; else None."""
    owner: Object = {"metadata": {"uid": service.uid}}
    accounts = [item for item in snapshot.children if item["kind"] == "ServiceAccount" and owned_by(item, owner)]
    pods = [pod for pod in snapshot.pods if not is_worker(pod) and not deleting(pod) and not ended(pod)]
    for account in accounts:
        created = unix(account["metadata"].get("creationTimestamp")) or 0.0
        if any((unix(pod["metadata"].get("creationTimestamp")) or created) < created for pod in pods):
            return str(account["metadata"]["uid"])
    template = snapshot.router["spec"]["template"]["metadata"] if snapshot.router else {}
    if (template.get("labels") or {}).get(names.REVISION) != router_revision(service):
        return None
    return (template.get("annotations") or {}).get(names.ACCOUNT)


def _uncounted(observed: tuple[Group, ...], allowed: Step) -> frozenset[int]:
    """Groups that the budget leaves out while others serve: such as never served, and such as are going."""
    if not any(group.served for group in allowed.keep):
        return frozenset()
    served = {group.index for group in allowed.keep if group.served}
    return frozenset({group.index for group in observed} | {new.index for new in allowed.create}) - served


def _evictions(service: InferenceService, snapshot: Snapshot, allowed: Step, is_stopped: bool, now: float) -> int:
    """Workers that may be evicted at a time: none while the operator replaces groups on nodes that are drained."""
    surges = service.spec.disruption.surges and snapshot.draining_nodes is not None and not is_stopped
    return int(not surges or is_overdue(allowed.drains, service.spec.rollout.progress_deadline_s, now))


def _nodes_unreadable(service: InferenceService, snapshot: Snapshot) -> Iterator[Event]:
    if service.spec.disruption.surges and snapshot.draining_nodes is None:
        message = (
            "spec.disruption.onDrain is surge, but the operator may not read nodes, so that it does not see drains: "
            "groups are evicted one at a time. Set readNodes of the chart"
        )
        yield Event("Warning", "NodesUnreadable", message)


def _delete(group: Group, reason: str) -> Delete:
    assert group.live is not None, "only groups that exist are deleted"
    metadata = group.live["metadata"]
    event = Event("Normal", "GroupDeleted", f"draining and deleting {metadata['name']}: {reason}")
    return Delete("apps/v1", "StatefulSet", metadata["name"], metadata["uid"], reason, event=event)


def _course_events(service: InferenceService, facts: Facts) -> Iterator[Event]:
    """A Warning when a rollout becomes overdue or is rolled back: the conditions may have been false before."""
    _, reason, message = progressing.verdict(facts)
    before = (entry["reason"] for entry in service.status.get("conditions") or () if entry["type"] == "Progressing")
    if reason in (progressing.OVERDUE, progressing.ROLLED_BACK) and next(before, "") != reason:
        yield Event("Warning", reason, message)


def _changes_after(
    service: InferenceService,
    snapshot: Snapshot,
    observed: tuple[Group, ...],
    allowed: Step,
    facts: Facts,
    now: float,
) -> float | None:
    """Seconds until `plan` returns another result for the same input; None: never. Covers every use of `now`."""
    judge = PodJudge(snapshot.lost_nodes, service.spec.disruption)
    times = [
        judge.next_check(observed, now),
        gangs.next_step(allowed.keep, _gang_backoff_after_s(service, snapshot), now),
        next_down(facts.goal, allowed.keep, now),
        next_overdue(allowed.drains, service.spec.rollout.progress_deadline_s, now),
        facts.keys.changes_after(now),
    ]
    turns = [cause.failure_at for cause in (*facts.waits.values(), facts.router_wait, facts.routers.cause) if cause]
    if facts.routers.settles_at is not None:
        turns.append(facts.routers.settles_at)
    if facts.course.due_s is not None:
        turns.append(facts.course.due_s)
    times += [at - now + 0.1 for at in turns if now < at < math.inf]
    return min((time for time in times if time is not None), default=None)


def _poll_after(observed: tuple[Group, ...], snapshot: Snapshot, facts: Facts) -> float | None:
    """Seconds until groups or routers are asked again, where they say more than watches do; None: no need."""
    if facts.serving and facts.routers.disconnected_since is not None:
        return ROUTER_POLL_S
    if any(map(_is_polled, observed)):
        return POLL_S
    if facts.serving and facts.routers.ready < facts.routers.total:
        return UNREADY_ROUTER_POLL_S
    return KEYS_POLL_S if any(map(has_keys, snapshot.pods)) else None


def _is_polled(group: Group) -> bool:
    """True for groups whose progress is polled: running and not serving, or without a known owner."""
    running = any((pod.get("status") or {}).get("phase") == "Running" for pod in group.pods)
    return group.owner_unknown or (not group.terminating and not group.serving and running)
