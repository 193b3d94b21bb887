"""An operator at rest writes nothing but its Lease."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, condition, operator, service, settled, writes

IDLE_S = 120


@dataclass(frozen=True, slots=True)
class Idle:
    """Ten services without changes, and their operator. since: when they rested, offset: in the audit log then."""

    operator: Operator
    space: str
    since: float
    offset: int


@pytest.fixture(scope="session")
def idle(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Idle]:
    services = [service(f"s{i}", replicas=1 + i % 2) for i in range(10)]
    folder = tmp_path_factory.mktemp("idle")
    with bed.namespace("idle") as space, operator(bed.kubeconfig, folder, space) as one:
        bed.apply(*services, namespace=space)
        settled(bed, space)
        yield Idle(one, space, time.monotonic(), bed.audit_log.stat().st_size)


def test_ten_new_services_come_to_rest(idle: Idle) -> None:
    assert idle.operator.leads


@pytest.mark.last
@pytest.mark.timeout(300)
def test_ten_idle_services_cause_no_writes_but_leases(bed: Bed, idle: Idle) -> None:
    """For two minutes at least, in which other tests run."""
    time.sleep(max(0.0, idle.since + IDLE_S - time.monotonic()))
    assert writes(bed, idle.space, idle.offset) == []
    lease = bed.get("lease", "octavo-operator", idle.space)
    assert lease is not None and idle.operator.leads  # it lived, and could have written


def test_a_restarted_operator_writes_nothing_where_nothing_changed(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one:
        bed.apply(service(), namespace=space)
        settled(bed, space)
        assert one.stop() == 0
    offset = bed.audit_log.stat().st_size
    with operator(bed.kubeconfig, tmp_path, space) as another:
        wait_until(lambda: another.leads, 10, "the second operator leads")
        time.sleep(5)
        assert writes(bed, space, offset) == []


def test_a_group_of_six_pods_is_written_once(bed: Bed, space: str, tmp_path: Path) -> None:
    spread = service(parallelism={"tensor": 3, "pipeline": 2}, accelerator={"perPod": 1}, replicas=2)
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(spread, namespace=space)
        settled(bed, space, quiet_s=5)
    made = [line.strip() for line in writes(bed, space) if "statefulsets" in line]
    assert sorted(made) == ["patch statefulsets/chat-0", "patch statefulsets/chat-1"]
    for index in (0, 1):
        found = bed.get("statefulset", f"chat-{index}", space)
        assert found is not None and found["spec"]["replicas"] == 6
        template = found["spec"]["template"]
        (terms,) = template["spec"]["affinity"]["podAffinity"].values()
        labels = terms[0]["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert labels["octavo.dev/group"] == template["metadata"]["labels"]["octavo.dev/group"] == str(index)


def test_a_group_that_gives_back_its_nodes_is_written_once_for_each_way(bed: Bed, space: str, tmp_path: Path) -> None:
    later = "2999-01-01T00:00:00Z"
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(parallelism={"pipeline": 2}), namespace=space)
        settled(bed, space)
        offset = bed.audit_log.stat().st_size
        note_as_operator(bed, space, "chat-0", f'{{"attempts": 1, "until": "{later}"}}')
        settled(bed, space, quiet_s=5)
        away = bed.get("statefulset", "chat-0", space)
        assert away is not None and away["spec"]["replicas"] == 0
        assert later in condition(bed, space, "Degraded")["message"]
        note_as_operator(bed, space, "chat-0", '{"attempts": 1, "until": "2020-01-01T00:00:00Z"}')
        wait_until(lambda: _replicas(bed, space) == 2, 20, "the group is back")
        settled(bed, space, quiet_s=5)
        made = [line.strip() for line in writes(bed, space, offset) if "statefulsets" in line]
        assert made == ["patch statefulsets/chat-0"] * 2


def note_as_operator(bed: Bed, space: str, name: str, backoff: str) -> None:
    """Note a back-off in a StatefulSet as the operator's field manager: another one's is not believed."""
    live = bed.get("statefulset", name, space)
    assert live is not None
    kept = {key: live["metadata"][key] for key in ("labels", "ownerReferences")}
    notes = live["metadata"].get("annotations", {}) | {"octavo.dev/gang-backoff": backoff}
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    item = {**about, "metadata": {"name": name, **kept, "annotations": notes}, "spec": live["spec"]}
    bed.client.apply(item, space, manager="octavo")


def _replicas(bed: Bed, space: str) -> int:
    return int((bed.get("statefulset", "chat-0", space) or {"spec": {"replicas": -1}})["spec"]["replicas"])


def test_quantities_in_other_spellings_cause_no_write(bed: Bed, space: str, tmp_path: Path) -> None:
    def resources(cpu: object, memory: str) -> dict[str, object]:
        return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}

    def asked(cpu: object, memory: str) -> dict[str, object]:
        return service(resources=resources(cpu, memory), router={"resources": resources(cpu, memory)})

    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(asked("1000m", "1Gi"), namespace=space)
        settled(bed, space)
        before = _versions(bed, space)
        offset = bed.audit_log.stat().st_size
        bed.apply(asked(1, "1024Mi"), namespace=space)
        settled(bed, space, quiet_s=5)
        written = [
            line for line in writes(bed, space, offset) if "inferenceservices" not in line and "events" not in line
        ]
        assert written == []  # the status may name the new generation; nothing else moves
        assert _versions(bed, space) == before


def _versions(bed: Bed, space: str) -> dict[str, str]:
    """The generation of what has one: the spec that was written, whatever the controllers did to the status."""
    kinds = "statefulsets,deployments,networkpolicies,poddisruptionbudgets"
    selector = "octavo.dev/service=chat"
    return {
        f"{o['kind']}/{o['metadata']['name']}": str(o["metadata"]["generation"])
        for o in bed.objects(kinds, space, selector)
    }
