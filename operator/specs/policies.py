"""PodDisruptionBudgets of workers and routers."""

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.specs import common
from octavo.operator.specs.common import Json


def worker_budget(service: InferenceService, left_out: Iterable[int] = (), evictions: int = 1) -> Json:
    """Budget of the workers: so many evictions at a time; a pod that is not ready may always be evicted.

    left_out: indexes of groups whose pods do not count, so that they take no eviction from the others.
    """
    budget = _budget(service, names.workers(service.name), "worker", evictions)
    if indexes := sorted(left_out):
        without = {"key": names.GROUP, "operator": "NotIn", "values": [str(index) for index in indexes]}
        budget["spec"]["selector"]["matchExpressions"] = [without]
    return budget


def unblocked(live: Mapping[str, Any], service: str, uid: str) -> Json:  # Any: Kubernetes JSON
    """The live budget of the workers of the service of this name and uid, but with one eviction at a time."""
    kept = {key: live["spec"][key] for key in ("selector", "unhealthyPodEvictionPolicy") if key in live["spec"]}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": live["metadata"]["name"],
            "namespace": live["metadata"]["namespace"],
            "labels": {**names.common_labels(service), names.COMPONENT: "worker"},
            "ownerReferences": [common.owner(service, uid)],
        },
        "spec": {"maxUnavailable": 1, **kept},
    }


def router_budget(service: InferenceService) -> Json:
    """Budget of the routers: one eviction at a time."""
    return _budget(service, names.router(service.name), "router")


def _budget(service: InferenceService, name: str, component: str, evictions: int = 1) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": common.metadata(service, name, {names.COMPONENT: component}),
        "spec": {
            "maxUnavailable": evictions,
            "selector": {"matchLabels": names.component(service.name, component)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
