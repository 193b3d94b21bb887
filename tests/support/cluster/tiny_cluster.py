"""A cluster of a few dictionaries: it obeys plans as Kubernetes would, slowly and in any order.

StatefulSets make pods, pods start at `advance`, images named `bad` never serve, deleted pods drain first, a
group serves when all its pods do. Routers are replaced at once, or with `slow_routers` one by one at `advance`. `blip`
and `break_for_good` make groups that serve fail. Pods get the first of NODES that is not `cordoned`, and `evict` asks
the workers' budget.
"""

import pickle
from collections.abc import Callable
from typing import Any

from octavo.operator.api.v1alpha1 import parse_stored
from octavo.operator.groups import names
from octavo.operator.groups.groups import timestamp
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import GroupReport, Snapshot
from octavo.operator.planning.actions import Plan
from octavo.operator.planning.plan import plan

Json = dict[str, Any]  # Any: Kubernetes JSON
END_S = 4_102_444_800.0  # Unix time at which grace periods end
NODES = ("node-0", "node-1", "node-2")


class TinyCluster:
    """One service and its StatefulSets and pods."""

    def __init__(self, resource: Json, options: Options | None = None, room: int | None = None) -> None:
        """room: how many pods find a node; None: all."""
        self.resource = resource
        self.options = options or Options()
        self.sets: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.revisions: dict[str, Json] = {}
        self.router: Json | None = None
        self.routers: dict[str, Json] = {}
        self.slow_routers = False
        self.reports: dict[int, GroupReport] = {}  # by group
        self.room = room
        self.cordoned: set[str] = set()  # nodes
        self.budget: Json = {}  # of the workers
        self.broken: set[str] = set()  # names of groups that never serve again
        self.now = 1_000_000.0
        self._uids = 0

    def edit(self, **spec: Any) -> None:
        """A user changes the spec."""
        self.resource["spec"] = {**self.resource["spec"], **spec}
        self.resource["metadata"]["generation"] += 1

    def snapshot(self) -> Snapshot:
        return Snapshot(
            statefulsets=tuple(_copied(list(self.sets.values()))),
            revisions=tuple(_copied(list(self.revisions.values()))),
            pods=tuple(_copied([*self.pods.values(), *self.routers.values()])),
            router=_copied(self.router),
            reports=dict(self.reports),
            draining_nodes=dict.fromkeys(self.cordoned, "is cordoned") if self._surges() else {},
        )

    def _surges(self) -> bool:
        return bool(self.resource["spec"].get("disruption", {}).get("onDrain") == "surge")

    def reconcile(self) -> Plan:
        """One look of the operator, carried out."""
        self.now += 1
        planned = plan(parse_stored(self.resource), self.snapshot(), self.options, self.now)
        for item in planned.apply:
            if item.object["kind"] == "StatefulSet":
                self._apply(_copied(dict(item.object)))
            elif item.object["kind"] == "Deployment":
                self.router = _copied(dict(item.object))
                if not self.slow_routers:
                    self.routers = self._desired_routers()
            elif item.object["kind"] == "ControllerRevision":
                self._keep(_copied(dict(item.object)))
        budgets = (item.object for item in planned.apply if item.object["kind"] == "PodDisruptionBudget")
        self.budget = next((one["spec"] for one in budgets if one["metadata"]["name"].endswith("-workers")), {})
        for gone in planned.delete:
            if gone.kind == "ControllerRevision":
                del self.revisions[gone.name]
            elif gone.name in self.sets and self.sets[gone.name]["metadata"]["uid"] == gone.uid:
                self.delete_set(gone.name)
        for gone in planned.delete_pods:
            self.delete_pod(gone.name)
        self.resource["status"] = planned.status
        return planned

    def _desired_routers(self) -> dict[str, Json]:
        """Ready router pods as the Deployment has them, by name."""
        if self.router is None:
            return {}
        template = self.router["spec"]["template"]
        revision = template["metadata"]["labels"]["octavo.dev/revision"]
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        desired = [f"router-{revision}-{index}" for index in range(self.router["spec"]["replicas"])]
        return {
            name: {
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": template["metadata"]["labels"]},
                "spec": {},
                "status": status,
            }
            for name in desired
        }

    def _apply(self, item: Json) -> None:
        name = item["metadata"]["name"]
        if name in self.sets:
            old = self.sets[name]
            assert item["spec"]["selector"] == old["spec"]["selector"], "a selector may never change"
            assert item["spec"]["template"] == old["spec"]["template"], "a group's template is written once"
            item["metadata"]["uid"] = old["metadata"]["uid"]
            if item["spec"]["replicas"] == 0:
                self._terminate_pods(name)
        else:
            self._uids += 1
            item["metadata"]["uid"] = f"uid-{self._uids}"
        self.sets[name] = item

    def _keep(self, item: Json) -> None:
        name = item["metadata"]["name"]
        old = self.revisions.get(name, item)
        assert item["data"] == old["data"], "the API server refuses a change of a revision's data"
        item["metadata"]["uid"] = f"uid-{name}"
        self.revisions[name] = item

    def delete_set(self, name: str) -> None:
        """A StatefulSet goes at once, its pods drain."""
        self._terminate_pods(name)
        del self.sets[name]

    def _terminate_pods(self, name: str) -> None:
        for pod in self.pods_of(name):
            self._terminate(pod)

    def pods_of(self, name: str) -> list[Json]:
        """The pods that this StatefulSet made, in order of their names."""
        uid = self.sets[name]["metadata"]["uid"]
        return [pod for _, pod in sorted(self.pods.items()) if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def delete_pod(self, name: str) -> None:
        """As by `kubectl delete pod`; without it the others of its group do not serve."""
        if name not in self.pods:
            return
        self._terminate(self.pods[name])
        owner = self.pods[name]["metadata"]["ownerReferences"][0]["uid"]
        for other in self.pods.values():
            if other["metadata"]["ownerReferences"][0]["uid"] == owner and other is not self.pods[name]:
                _set(other, {"type": "Ready", "status": "False"})

    def evict(self, name: str) -> bool:
        """As by `kubectl drain`: False if the budget refuses it, as the disruption controller computes it."""
        pod = self.pods[name]
        if not ready(pod) or not self._is_budgeted(pod):
            self.delete_pod(name)
            return True
        sets = [item for item in self.sets.values() if self._is_budgeted(item["spec"]["template"])]
        expected = sum(item["spec"]["replicas"] for item in sets)
        able = [one for one in self.pods.values() if ready(one) and not one["metadata"].get("deletionTimestamp")]
        healthy = sum(self._is_budgeted(one) for one in able)
        if healthy <= expected - self.budget["maxUnavailable"]:
            return False
        self.delete_pod(name)
        return True

    def _is_budgeted(self, pod: Json) -> bool:
        left_out = [value for rule in self.budget["selector"].get("matchExpressions", ()) for value in rule["values"]]
        return pod["metadata"]["labels"][names.GROUP] not in left_out

    def on(self, node: str) -> list[str]:
        """Names of the pods on a node that are not being deleted."""
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod["spec"]["nodeName"] == node and not pod["metadata"].get("deletionTimestamp")
        )

    def blip(self, name: str) -> None:
        """A rank of the group crashes: its pods stay, and are ready again later."""
        for pod in self.pods_of(name):
            _set(pod, {"type": "Ready", "status": "False"})

    def break_for_good(self, name: str) -> None:
        """The same, for ever."""
        self.blip(name)
        self.broken.add(self.sets[name]["metadata"]["uid"])

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    def _terminate(self, pod: Json) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = timestamp(END_S)
            pod["metadata"]["deletionGracePeriodSeconds"] = int(END_S - self.now)

    def advance(self, choose: Callable[[list[str]], str]) -> None:
        """One thing happens: a pod is made, placed, ready, or gone. `choose` picks among what could happen."""
        self.now += 1
        possible = self.possible()
        if not possible:
            return
        event = choose(sorted(possible))
        kind, name = event.split(" ")
        if kind == "make":
            self._make(name)
        elif kind == "place":
            _set(self.pods[name], {"type": "PodScheduled", "status": "True"})
        elif kind == "serve":
            self.pods[name]["status"]["phase"] = "Running"
            _set(self.pods[name], {"type": "Ready", "status": "True"})
        elif kind == "start":
            self.routers[name] = self._desired_routers()[name]
        elif kind == "stop":
            del self.routers[name]
        else:
            del self.pods[name]

    def possible(self) -> list[str]:
        """What could happen now."""
        found = [
            f"make {name}-{index}"
            for name, item in self.sets.items()
            for index in range(item["spec"]["replicas"])
            if f"{name}-{index}" not in self.pods
        ]
        for name, pod in self.pods.items():
            if pod["metadata"].get("deletionTimestamp"):
                found.append(f"remove {name}")
            elif not _is(pod, "PodScheduled"):
                found += [f"place {name}"] if self._free() else []
            elif not ready(pod) and self._can_serve(name.rpartition("-")[0]):
                found.append(f"serve {name}")
        starting = [f"start {name}" for name in self._desired_routers().keys() - self.routers.keys()]
        return found + (starting or [f"stop {name}" for name in self.routers.keys() - self._desired_routers().keys()])

    def _free(self) -> bool:
        return self.room is None or sum(_is(pod, "PodScheduled") for pod in self.pods.values()) < self.room

    def _can_serve(self, name: str) -> bool:
        """Its pods are all there and have found each other."""
        pods = self.pods_of(name)
        if self.sets[name]["metadata"]["uid"] in self.broken:
            return False
        whole = sum(_is(pod, "PodScheduled") for pod in pods) == self.sets[name]["spec"]["replicas"]
        return whole and not any("bad" in pod["spec"]["containers"][0]["image"] for pod in pods)

    def _make(self, pod: str) -> None:
        name, _, index = pod.rpartition("-")
        template = _copied(self.sets[name]["spec"]["template"])
        self._uids += 1
        owner = [{"uid": self.sets[name]["metadata"]["uid"], "controller": True}]
        labels = {**template["metadata"]["labels"], names.POD_INDEX: index}
        metadata = {"name": pod, "uid": f"uid-{self._uids}", "ownerReferences": owner, "labels": labels}
        placed = {"type": "PodScheduled", "status": "True"}
        if not self._free():
            since = timestamp(self.now)
            placed |= {
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes",
                "lastTransitionTime": since,
            }
        node = next((node for node in NODES if node not in self.cordoned), NODES[-1])
        spec = {**template["spec"], "nodeName": node}
        self.pods[pod] = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        _set(self.pods[pod], placed)

    def serving(self) -> int:
        """Groups that answer now: all their pods are ready."""
        return len(self.groups_serving())

    def groups_serving(self) -> set[str]:
        """Names of the groups that answer now, as a client would count them."""
        return {name for name in self.sets if self._serves(name)}

    def _serves(self, name: str) -> bool:
        able = [pod for pod in self.pods_of(name) if ready(pod) and not pod["metadata"].get("deletionTimestamp")]
        return len(able) == self.sets[name]["spec"]["replicas"] > 0

    def image(self, name: str) -> str:
        """Image of a group."""
        return str(self.sets[name]["spec"]["template"]["spec"]["containers"][0]["image"])

    def revision_of(self, image: str) -> str:
        """The kept revision of the workers with this image."""
        (found,) = (item for name, item in self.revisions.items() if self.template_image(name) == image)
        return str(found["metadata"]["labels"][names.REVISION])

    def template_image(self, name: str) -> str:
        """Image of a kept revision. name: of its ControllerRevision."""
        return str(self.revisions[name]["data"]["spec"]["template"]["spec"]["containers"][0]["image"])

    def condition(self, kind: str) -> Json:
        """A condition of the service."""
        return next(entry for entry in self.resource["status"]["conditions"] if entry["type"] == kind)

    def taken(self) -> set[str]:
        """Names of groups that exist or drain: each holds a device."""
        return set(self.sets) | {name.rpartition("-")[0] for name in self.pods}

    def images(self) -> list[str]:
        """Images of the groups that exist, in order of their names."""
        return [self.image(name) for name in sorted(self.sets)]

    def settle(self, rounds: int = 200) -> None:
        """Let everything happen that can, in order, with a look of the operator after each."""
        for _ in range(rounds):
            planned = self.reconcile()
            if not self.possible() and not planned.delete and not planned.delete_pods:
                return
            self.advance(lambda events: events[0])
        raise AssertionError(f"not settled after {rounds} rounds")


def _copied(value: Any) -> Any:
    """As copy.deepcopy, at a fifth of its cost, which was most of what a look of the operator cost here."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def ready(pod: Json) -> bool:
    """The kubelet calls the pod ready."""
    return _is(pod, "Ready")


def _is(pod: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _set(pod: Json, condition: Json) -> None:
    others = [old for old in pod["status"].get("conditions", ()) if old["type"] != condition["type"]]
    pod["status"]["conditions"] = [*others, condition]
