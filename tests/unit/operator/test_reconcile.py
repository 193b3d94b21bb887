"""One look at a service: what it does when something is new, and what it spares when nothing is."""

import time
from collections.abc import Mapping
from typing import Any, cast

import pytest
from support.cluster.services import resource

from octavo.operator.cluster.apply import Postponed, TemplateKept, Writer
from octavo.operator.cluster.certificates import CertificateKeeper
from octavo.operator.cluster.events import Recorder
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import KubeError
from octavo.operator.drift.turns import Turns
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import FieldConflict, LostNode, Snapshot
from octavo.operator.observing.observer import Observer
from octavo.operator.planning.actions import Event
from octavo.operator.reconcile import PlanFailed, Reconciler


class Parts:
    """All that a reconciler works with, in one. done: what it was asked to do."""

    def __init__(self) -> None:
        self.resource, self.seen = resource(), Snapshot()
        self.done: list[str] = []
        self.is_known = False
        self.error: Exception | None = None
        self.refused = ""  # the kind that `error` is about; "": all
        self.written: Mapping[str, Any] = {}  # the last status
        self.writes = False  # whether an apply finds something to write
        self.events: list[str] = []
        self.turns = Turns()
        self.postponed: Postponed | None = None  # of the kind `refused`
        self.surges: list[bool] = []  # of each snapshot
        self.left_alone: set[str] = set()  # namespaces whose Lease another operator holds

    def get(self, kind: str, *_: str) -> Mapping[str, Any] | None:
        return self.resource if kind == "InferenceService" else None

    async def snapshot(self, *asked: object) -> Snapshot:
        self.surges.append(bool(asked[-1]))
        return self.seen

    def known(self, _uid: str) -> bool:
        return self.is_known

    def due(self, *_: object) -> bool:
        return True

    async def ensure(self, *_: object) -> None:
        self.is_known = True
        self.done.append("certificates")

    async def may_write(self, namespace: str) -> bool:
        return namespace not in self.left_alone

    async def apply(self, planned: Mapping[str, Any], _uid: str) -> bool:
        if self.error is not None and self.refused in ("", planned["kind"]):
            raise self.error
        if self.postponed is not None and self.refused == planned["kind"]:
            raise self.postponed
        self.done.append(planned["kind"])
        return self.writes

    async def status(self, _resource: object, status: Mapping[str, Any]) -> bool:
        self.done.append("status")
        self.written = status
        return False

    async def record(self, _resource: object, event: Event) -> None:
        self.events.append(event.reason)


@pytest.fixture
def parts() -> Parts:
    return Parts()


def _reconciler(parts: Parts) -> Reconciler:
    return Reconciler(
        cast(Caches, parts),
        cast(Observer, parts),
        cast(Writer, parts),
        cast(CertificateKeeper, parts),
        cast(Recorder, parts),
        parts.may_write,
    )


async def _look(one: Reconciler) -> float | None:
    return await one.reconcile("ns/chat", Options())


async def test_pods_are_not_made_before_their_certificates_and_a_change_does_not_wait_for_them(parts: Parts) -> None:
    one = _reconciler(parts)
    await _look(one)
    assert parts.done[0] == "certificates" and parts.done.count("certificates") == 1 and "StatefulSet" in parts.done
    parts.done.clear()
    parts.resource = {**parts.resource, "metadata": {**parts.resource["metadata"], "generation": 2}}
    await _look(one)
    assert parts.done[-2:] == ["certificates", "status"] and "StatefulSet" in parts.done


async def test_where_nothing_is_new_only_the_secrets_are_looked_at(parts: Parts) -> None:
    one = _reconciler(parts)
    waits = [await _look(one) for _ in range(4)]
    parts.done.clear()
    waits.append(await _look(one))
    assert parts.done == ["certificates"]
    assert waits[0] is not None and waits[-1] is not None and waits[-1] > 2 * waits[0]
    parts.seen = Snapshot(lost_nodes={"node1": LostNode("gone", 0.0)})
    await _look(one)
    assert "StatefulSet" in parts.done


async def test_what_was_written_and_is_gone_before_it_is_seen_is_written_again(parts: Parts) -> None:
    """The snapshot is then that of the look which wrote."""
    one, parts.writes = _reconciler(parts), True
    for _ in range(2):
        parts.done.clear()
        await _look(one)
        assert "NetworkPolicy" in parts.done


async def test_after_an_error_all_is_done_again(parts: Parts) -> None:
    one = _reconciler(parts)
    await _look(one)
    parts.seen = Snapshot(lost_nodes={"node1": LostNode("gone", 0.0)})
    parts.error = KubeError(500, "InternalError", "etcd")
    for _ in range(2):
        with pytest.raises(PlanFailed):
            await _look(one)
    parts.error = None
    parts.done.clear()
    await _look(one)
    assert "StatefulSet" in parts.done


def _condition(parts: Parts, kind: str) -> tuple[str, str, str]:
    entry = next(entry for entry in parts.written["conditions"] if entry["type"] == kind)
    return entry["status"], entry["reason"], entry["message"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, 'deployments.apps "chat-router" is forbidden: exceeded quota: none'),
        (403, 'deployments.apps "chat-router" is forbidden: User "octavo" cannot patch resource'),
        (422, 'Deployment.apps "chat-router" is invalid: spec.template: Invalid value'),
        (400, 'admission webhook "policies" denied the request: no team'),
        (500, 'Internal error occurred: failed calling webhook "policies": connection refused'),
    ],
)
async def test_a_refused_write_is_in_the_status_at_once_and_stops_no_other(
    parts: Parts, status: int, words: str
) -> None:
    one, parts.error, parts.refused = _reconciler(parts), KubeError(status, "Refused", words), "Deployment"
    with pytest.raises(PlanFailed):
        await _look(one)
    assert {"StatefulSet", "NetworkPolicy", "status"} <= set(parts.done) and "Deployment" not in parts.done
    expected = "QuotaExceeded" if "quota" in words else "WriteRefused"
    assert _condition(parts, "Reconciled") == ("False", expected, f"apply Deployment chat-router: {words}")
    parts.error = None
    await _look(one)
    assert _condition(parts, "Reconciled")[:2] == ("True", "Applied") and "Deployment" in parts.done


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "etcdserver: request timed out"), (429, "too many requests"), (409, "conflict"), (0, "unreachable"),
     (403, 'namespaces "ns" is forbidden: unable to create new content because it is being terminated')],
)  # fmt: skip
async def test_an_error_that_passes_by_itself_is_no_refusal(parts: Parts, status: int, words: str) -> None:
    one, parts.error = _reconciler(parts), KubeError(status, "Error", words)
    with pytest.raises(PlanFailed):
        await _look(one)
    assert _condition(parts, "Reconciled")[:2] == ("True", "Applied")


async def test_no_pod_runs_of_a_template_that_could_not_be_kept(parts: Parts) -> None:
    one = _reconciler(parts)
    parts.error, parts.refused = KubeError(403, "Forbidden", "no"), "ControllerRevision"
    with pytest.raises(PlanFailed):
        await _look(one)
    assert "Service" in parts.done and "StatefulSet" not in parts.done and "Deployment" not in parts.done
    parts.error = None
    await _look(one)
    assert "StatefulSet" in parts.done and "Deployment" in parts.done


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_postponed_revision_stops_no_pods_of_a_template_that_it_keeps(parts: Parts, keeps: bool) -> None:
    parts.postponed, parts.refused = Postponed("ControllerRevision", "chat-1", 99.0, keeps), "ControllerRevision"
    await _look(_reconciler(parts))
    assert ("StatefulSet" in parts.done, "Deployment" in parts.done) == (keeps, keeps)


async def test_a_template_that_is_kept_already_is_planned_with_at_once(parts: Parts) -> None:
    one = _reconciler(parts)
    parts.error, parts.refused = TemplateKept("chat-1"), "ControllerRevision"
    assert await _look(one) == 0.0
    assert "StatefulSet" not in parts.done and "status" not in parts.done


async def test_a_group_is_reported_as_created_once_it_is_and_not_when_the_write_is_refused(parts: Parts) -> None:
    one = _reconciler(parts)
    parts.error = KubeError(403, "Forbidden", "exceeded quota: q")
    with pytest.raises(PlanFailed):
        await _look(one)
    assert "GroupCreated" not in parts.events
    parts.error, parts.writes = None, True
    await _look(one)
    assert parts.events.count("GroupCreated") == 1
    parts.events.clear()
    parts.writes = False
    parts.seen = Snapshot(lost_nodes=frozenset({"node1"}))
    await _look(one)
    assert "GroupCreated" not in parts.events, "the group was there already"


async def test_a_namespace_that_is_being_deleted_is_nothing_to_warn_of(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    words = "unable to create new content in namespace ns because it is being terminated"
    parts.error = KubeError(403, "Forbidden", words)
    with pytest.raises(PlanFailed) as failed:
        await _look(_reconciler(parts))
    assert failed.value.is_termination
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert "ApplyFailed" not in parts.events


async def test_a_postponed_write_is_no_failure_and_is_tried_at_its_time(parts: Parts) -> None:
    one = _reconciler(parts)
    parts.postponed, parts.refused = Postponed("Deployment", "chat-router", 3.0), "Deployment"
    assert await _look(one) == 3.0
    assert {"StatefulSet", "NetworkPolicy", "status"} <= set(parts.done) and "ApplyFailed" not in parts.events
    assert _condition(parts, "Reconciled")[:2] == ("True", "Applied"), "it is no conflict yet"
    parts.done.clear()
    parts.postponed = None
    await _look(one)
    assert "Deployment" in parts.done, "nothing is taken for done"


async def test_a_field_conflict_is_in_the_status_at_once_and_degrades_nothing(parts: Parts) -> None:
    one, drift = _reconciler(parts), parts.turns.drift("uid-chat")
    key, now = ("Deployment", "chat-router"), time.monotonic()
    for number in range(5):
        drift.applied(key, 1, now)
        drift.changed(key, 1, now)
        drift.found(key, FieldConflict(*key, "spec.replicas", "autoscaler"))
        if number == 1:
            await _look(one)
            assert _condition(parts, "Reconciled")[:2] == ("True", "Applied")
    wait_s = await _look(one)
    status, reason, message = _condition(parts, "Reconciled")
    assert (status, reason) == ("False", "FieldConflict")
    assert message.startswith('Deployment chat-router: "autoscaler" changes spec.replicas each time')
    assert _condition(parts, "Degraded")[0] == "False"
    assert wait_s is not None and wait_s < 5.0, "it is looked at when it may be applied again"


async def test_services_of_a_namespace_whose_lease_another_operator_holds_are_left_alone(parts: Parts) -> None:
    one = _reconciler(parts)
    parts.left_alone.add("ns")
    assert await _look(one) is None and parts.done == [] and parts.events == []
    parts.left_alone.clear()
    await _look(one)
    assert "StatefulSet" in parts.done


async def test_drains_are_looked_for_as_the_spec_says_whether_or_not_it_is_new(parts: Parts) -> None:
    one, looks = _reconciler(parts), list[bool]()
    for disruption in ({"onDrain": "surge"}, {"onDrain": "evict"}, {}):
        parts.resource = resource(disruption=disruption)
        for _ in range(3):
            await _look(one)
            looks.append(parts.surges[-1])
    assert looks == [True] * 3 + [False] * 6


@pytest.mark.parametrize("disruption", ["surge", ["surge"], 5])
async def test_certificates_are_renewed_though_the_stored_disruption_is_no_object(
    parts: Parts, disruption: object
) -> None:
    parts.resource = resource(disruption=disruption, status={"revision": "r1"})
    for _ in range(2):
        await _look(_reconciler(parts))
        assert parts.done[:1] == ["certificates"] and parts.surges[-1] is False
        parts.done.clear()
    assert _condition(parts, "Reconciled")[:2] == ("False", "InvalidSpec")
