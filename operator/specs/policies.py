"""PodDisruptionBudgets of workers and routers."""

from collections.abc import Iterable

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
