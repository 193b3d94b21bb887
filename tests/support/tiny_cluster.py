"""A cluster of a few dictionaries: it obeys plans as Kubernetes would, slowly and in any order.

StatefulSets make pods, pods start when told (`advance`), images named `bad` never serve, deleted pods drain first.
"""

import copy
from collections.abc import Callable
from typing import Any

from octavo.operator.actions import Plan
from octavo.operator.api.v1alpha1 import parse
from octavo.operator.options import Options
from octavo.operator.plan import plan
from octavo.operator.snapshot import Snapshot

Json = dict[str, Any]  # Any: Kubernetes JSON


class TinyCluster:
    """One service and its StatefulSets and pods."""

    def __init__(self, resource: Json, options: Options | None = None) -> None:
        self.resource = resource
        self.options = options or Options()
        self.sets: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.router: Json | None = None
        self.now = 1_000_000.0
        self._uids = 0

    def edit(self, **spec: Any) -> None:
        """A user changes the spec."""
        self.resource["spec"] = {**self.resource["spec"], **spec}
        self.resource["metadata"]["generation"] += 1

    def snapshot(self) -> Snapshot:
        return Snapshot(
            statefulsets=tuple(copy.deepcopy(list(self.sets.values()))),
            pods=tuple(copy.deepcopy(list(self.pods.values()))),
            router=copy.deepcopy(self.router),
        )

    def reconcile(self) -> Plan:
        """One look of the operator, carried out."""
        self.now += 1
        planned = plan(parse(self.resource), self.snapshot(), self.options, self.now)
        for item in planned.apply:
            if item.object["kind"] == "StatefulSet":
                self._apply(copy.deepcopy(dict(item.object)))
            elif item.object["kind"] == "Deployment":
                self.router = {**copy.deepcopy(dict(item.object)), "status": {"readyReplicas": 1}}
        for gone in planned.delete:
            if gone.name in self.sets and self.sets[gone.name]["metadata"]["uid"] == gone.uid:
                self.delete_set(gone.name)
        for gone in planned.delete_pods:
            self.delete_pod(gone.name)
        self.resource["status"] = planned.status
        return planned

    def _apply(self, item: Json) -> None:
        name = item["metadata"]["name"]
        if name in self.sets:
            old = self.sets[name]
            assert item["spec"]["selector"] == old["spec"]["selector"], "a selector may never change"
            assert item["spec"]["template"] == old["spec"]["template"], "a group's template is written once"
            return
        self._uids += 1
        item["metadata"]["uid"] = f"uid-{self._uids}"
        self.sets[name] = item

    def delete_set(self, name: str) -> None:
        """A StatefulSet goes at once, its pods drain."""
        uid = self.sets.pop(name)["metadata"]["uid"]
        for pod in self.pods.values():
            if pod["metadata"]["ownerReferences"][0]["uid"] == uid:
                self._terminate(pod)

    def delete_pod(self, name: str) -> None:
        """Somebody deletes a pod."""
        if name in self.pods:
            self._terminate(self.pods[name])

    def _terminate(self, pod: Json) -> None:
        pod["metadata"].setdefault("deletionTimestamp", "2100-01-01T00:00:00Z")

    def advance(self, choose: Callable[[list[str]], str]) -> None:
        """One thing happens: a pod is made, becomes ready, or is gone. `choose` picks among what could happen."""
        self.now += 1
        possible = self._possible()
        if not possible:
            return
        event = choose(sorted(possible))
        kind, name = event.split(" ")
        if kind == "make":
            self._make(name)
        elif kind == "serve":
            self.pods[name]["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        else:
            del self.pods[name]

    def _possible(self) -> list[str]:
        found = [f"make {name}" for name in self.sets if f"{name}-0" not in self.pods]
        for name, pod in self.pods.items():
            if pod["metadata"].get("deletionTimestamp"):
                found.append(f"remove {name}")
            elif not ready(pod) and "bad" not in pod["spec"]["containers"][0]["image"]:
                found.append(f"serve {name}")
        return found

    def _make(self, name: str) -> None:
        template = copy.deepcopy(self.sets[name]["spec"]["template"])
        self._uids += 1
        owner = [{"uid": self.sets[name]["metadata"]["uid"], "controller": True}]
        metadata = {"name": f"{name}-0", "uid": f"uid-{self._uids}", "ownerReferences": owner, **template["metadata"]}
        self.pods[f"{name}-0"] = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}

    def serving(self) -> int:
        """Groups that answer now, as a client would count them."""
        uids = {item["metadata"]["uid"] for item in self.sets.values()}
        return sum(
            ready(pod)
            and not pod["metadata"].get("deletionTimestamp")
            and pod["metadata"]["ownerReferences"][0]["uid"] in uids
            for pod in self.pods.values()
        )

    def taken(self) -> set[str]:
        """Names of groups that exist or drain: each holds a device."""
        return set(self.sets) | {name.removesuffix("-0") for name in self.pods}

    def images(self) -> list[str]:
        """Images of the groups that exist, in order of their names."""
        return [self.sets[name]["spec"]["template"]["spec"]["containers"][0]["image"] for name in sorted(self.sets)]

    def settle(self, rounds: int = 200) -> None:
        """Let everything happen that can, in order, with a look of the operator after each."""
        for _ in range(rounds):
            planned = self.reconcile()
            if not self._possible() and not planned.delete and not planned.delete_pods:
                return
            self.advance(lambda events: events[0])
        raise AssertionError(f"not settled after {rounds} rounds")


def ready(pod: Json) -> bool:
    """The kubelet calls the pod ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
