"""Where a service cannot be planned, no group is replaced before its node is drained: so the budget blocks no drain."""

from typing import Any

import pytest
from support.cluster.services import resource, service
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.apply_diff import different
from octavo.operator.planning.plan import Plan, plan
from octavo.operator.planning.unplanned import plan_invalid

Json = dict[str, Any]  # Any: Kubernetes JSON
SURGES = {"disruption": {"onDrain": "surge"}}


def live_budget(**spec: Any) -> Json:  # Any: fields of the service's spec
    """The workers' budget, as planned beside a group that has served and one that has not."""
    tiny = TinyCluster(resource(image="good", **spec))
    tiny.settle()
    tiny.edit(replicas=2)
    found = (item.object for item in tiny.reconcile().apply if item.object["metadata"]["name"] == "chat-workers")
    return next(dict(item) for item in found if item["kind"] == "PodDisruptionBudget")


def invalid(*children: Json) -> Plan:
    return plan_invalid(resource(replicas=-1), ValueError("spec.replicas: no"), Snapshot(children=children), 5.0)


def unreadable(*children: Json) -> Plan:
    seen = Snapshot(children=children, unreadable=(("Pod", "forbidden"),))
    return plan(service(**SURGES), seen, TinyCluster(resource()).options, 5.0)


@pytest.mark.parametrize("unplanned", [invalid, unreadable])
def test_a_budget_that_allows_no_eviction_allows_one_while_nothing_is_planned(unplanned: Any) -> None:
    live = live_budget(**SURGES)
    assert live["spec"]["maxUnavailable"] == 0 and live["spec"]["selector"]["matchExpressions"]
    planned = unplanned(live)
    (item,) = planned.apply
    assert list(different(live, dict(item.object))) == [("spec", "maxUnavailable")]
    assert item.object["spec"] == {**live["spec"], "maxUnavailable": 1} and not planned.delete


@pytest.mark.parametrize("unplanned", [invalid, unreadable])
def test_other_budgets_stay_as_they_are(unplanned: Any) -> None:
    closed = live_budget(**SURGES)
    foreign = {**closed, "metadata": {**closed["metadata"], "ownerReferences": [{"uid": "another"}]}}
    of_user = {**closed, "metadata": {**closed["metadata"], "name": "mine"}}
    going = {**closed, "metadata": {**closed["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert unplanned(live_budget(), foreign, of_user, going).apply == ()
